"""Loading: every plugin on its own, the bad ones listed with the reason, and only a config that asks for one ends."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longrein.agent import AgentAdapter
from longrein.errors import ConfigError, PluginError, UnknownNameError
from longrein.hookspecs import SDK_VERSION
from longrein.model import Outcome, Rollout, SessionResult, Trajectory, Verdict
from longrein.plugins import PluginHost, PluginInfo

Install = Callable[..., None]

AGENT = """
import attrs
from longrein import hookimpl
from longrein.agent import AgentAdapter, LaunchPlan

@attrs.frozen
class Options:
    effort: int = 1

class Tiny(AgentAdapter):
    name = "tiny"
    Options = Options
    def launch(self, session):
        return LaunchPlan(["true"])

@hookimpl
def longrein_agents():
    return [Tiny]
"""
"""A whole plugin that works."""
MARKED = "from longrein import hookimpl\n@hookimpl\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that puts a distribution with one module and its entry point where Python looks for them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(module: str, text: str, *, dist: str | None = None, point: str | None = None) -> None:
        dist = dist or module.replace("_", "-")
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        info = tmp_path / f"{dist.replace('-', '_')}-2.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 2.5\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[longrein]\n{point or module} = {module}\n", encoding="utf-8")

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def plugin(host: PluginHost, name: str) -> PluginInfo:
    return next(info for info in host.plugins if info.name == name)


def test_a_sound_plugin_is_listed_and_answers(install: Install) -> None:
    install("lr_tiny", AGENT, point="tiny")
    host = PluginHost.load()
    assert plugin(host, "tiny") == PluginInfo(
        "tiny",
        "installed",
        "lr_tiny",
        distribution="lr-tiny",
        version="2.5",
        hooks=("longrein_agents",),
        provides=("agent tiny",),
        sdk=1,
    )
    assert "tiny" in host.names("agent")
    agent = host.agent("tiny", {"effort": 3})
    assert isinstance(agent, AgentAdapter)
    assert agent.options.effort == 3


def test_built_ins_come_through_the_same_hooks() -> None:
    host = PluginHost.load()
    builtin = plugin(host, "builtin")
    assert (builtin.state, builtin.kind, builtin.distribution) == ("ok", "installed", "longrein")
    assert {"agent nop", "agent oracle", "reward binary", "reward fraction", "reward shaped", "sandbox bwrap"} <= set(builtin.provides)
    assert host.agent("nop", {}).capabilities.calls_model is False
    assert host.sandbox("supervisor").name == "supervisor"


BROKEN = {
    "import": ("import nowhere_to_be_found", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere_to_be_found' (lr_bad.py:1)"),
    "exit": ("import sys; sys.exit(3)", "cannot be loaded: SystemExit: 3"),
    "misspelt": (
        MARKED + "def longrein_clasify_turn(turn): ...",
        "implements an unknown hook 'longrein_clasify_turn'; did you mean 'longrein_classify_turn'?",
    ),
    "argument": (
        MARKED + "def longrein_classify_turn(turn, budget): ...",
        "Argument(s) {'budget'} are declared in the hookimpl but can not be found in the hookspec",
    ),
    "nothing": ("x = 1", "implements no hook; mark functions such as longrein_agents() with @longrein.hookimpl"),
    "unmarked": (AGENT + "def longrein_compute_reward(rollout): ...", "longrein_compute_reward is not marked with @longrein.hookimpl"),
    "wrapper": (
        MARKED.replace("@hookimpl", "@hookimpl(wrapper=True)") + "def longrein_compute_reward(rollout):\n    return (yield)",
        "longrein_compute_reward is a wrapper; longrein asks plugins one by one and has no wrappers",
    ),
    "raises": (MARKED + "def longrein_agents(): return 1 / 0", "longrein_agents raised ZeroDivisionError"),
    "no list": (MARKED + "def longrein_agents(): return None", "longrein_agents raised TypeError"),
    "no class": (MARKED + "def longrein_agents(): return ['tiny']", "longrein_agents answered 'tiny'; it takes"),
    "other class": (AGENT.replace("longrein_agents", "longrein_rewards"), "it takes classes derived from RewardFunction"),
    "no name": (AGENT.replace('name = "tiny"', ""), "longrein_agents answered Tiny, which has no `name`"),
    "abstract": (AGENT.replace("def launch", "def lanch"), "longrein_agents answered Tiny, which lacks launch"),
    "twice": (AGENT.replace("[Tiny]", "[Tiny, Tiny]"), "longrein_agents answered agent 'tiny' twice"),
    "options": (AGENT.replace("@attrs.frozen", ""), "longrein_agents answered Tiny, whose Options are no attrs class"),
    "too new": (
        f"LONGREIN_SDK = {SDK_VERSION + 1}\n" + AGENT,
        f"is too new: written for SDK {SDK_VERSION + 1}, this longrein has SDK {SDK_VERSION}; upgrade longrein",
    ),
    "version": ("LONGREIN_SDK = '1'\n" + AGENT, "LONGREIN_SDK must be a whole number, got '1'"),
}


@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_bad_plugin_is_listed_with_its_reason_and_harms_no_other(install: Install, text: str, reason: str) -> None:
    install("lr_bad", text, point="bad")
    host = PluginHost.load()
    assert plugin(host, "bad").state == "failed"
    assert reason in plugin(host, "bad").reason
    assert host.names("agent")[:1] != ["tiny"]
    assert plugin(host, "builtin").state == "ok"
    assert host.reward("binary").name == "binary"
    for asks in (lambda: PluginHost.load(["lr_bad"]), lambda: host.agent("bad", {})):
        with pytest.raises(PluginError, match=r"bad \(lr-bad 2\.5\) is failed: ") as error:
            asks()
        assert reason in str(error.value)
        assert error.value.exit_code == 2


@pytest.mark.parametrize("version", [1, SDK_VERSION])
def test_a_plugin_written_for_this_sdk_or_an_older_one_is_loaded(install: Install, version: int) -> None:
    install("lr_tiny", f"LONGREIN_SDK = {version}\n{AGENT}")
    assert plugin(PluginHost.load(), "lr_tiny").state == "ok"


def test_the_sdk_version_of_an_object_is_that_of_its_module(install: Install, tmp_path: Path) -> None:
    install(
        "lr_new",
        f"""
        from longrein import hookimpl
        LONGREIN_SDK = {SDK_VERSION + 1}
        class P:
            @hookimpl
            def longrein_agents(self):
                return []
        p = P()
    """,
    )
    (tmp_path / "lr_new-2.5.dist-info" / "entry_points.txt").write_text("[longrein]\nlr_new = lr_new:p\n", encoding="utf-8")
    assert "is too new" in plugin(PluginHost.load(), "lr_new").reason


def test_a_name_registered_twice_belongs_to_neither(install: Install) -> None:
    other = AGENT.replace("[Tiny]", "[Tiny, Other]").replace("@hookimpl", "class Other(Tiny):\n    name = 'other'\n\n@hookimpl")
    install("lr_one", AGENT)
    install("lr_two", other)
    host = PluginHost.load()
    for name in ("lr_one", "lr_two"):
        assert plugin(host, name).state == "failed"
        assert "agent 'tiny' is registered by lr_one (lr-one 2.5) and lr_two (lr-two 2.5)" in plugin(host, name).reason
    assert not {"tiny", "other"} & set(host.names("agent"))
    with pytest.raises(PluginError, match=r"agent 'tiny' cannot be used: .*lr-one 2\.5.*lr-two 2\.5.*uninstall or block all but one"):
        host.agent("tiny", {})
    with pytest.raises(PluginError, match=r"agent 'other' cannot be used: plugin lr_two \(lr-two 2\.5\) failed: agent 'tiny' is reg"):
        host.agent("other", {})


def test_a_plugin_that_takes_a_built_in_name_costs_that_name_only(install: Install) -> None:
    install("lr_one", AGENT.replace('"tiny"', '"nop"'))
    host = PluginHost.load()
    assert plugin(host, "builtin").state == "ok"
    assert host.agent("oracle", {}).name == "oracle"
    with pytest.raises(PluginError, match=r"agent 'nop' is registered by builtin \(longrein .*\) and lr_one"):
        host.agent("nop", {})


def test_one_of_two_can_be_blocked(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("lr_one", AGENT)
    install("lr_two", AGENT)
    monkeypatch.setenv("LONGREIN_PLUGINS_DISABLE", " lr-two ,")
    host = PluginHost.load()
    assert host.agent("tiny", {}).name == "tiny"
    assert (plugin(host, "lr_two").state, plugin(host, "lr_two").reason) == ("blocked", "named in LONGREIN_PLUGINS_DISABLE")
    with pytest.raises(PluginError, match=r"lr_two \(lr-two 2\.5\) is blocked: named in LONGREIN_PLUGINS_DISABLE"):
        PluginHost.load(["lr_two"])


def test_a_blocked_plugin_is_not_even_imported(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("lr_loud", "raise RuntimeError('imported')", point="loud")
    for word in ("loud", "lr_loud", "LR_Loud"):
        monkeypatch.setenv("LONGREIN_PLUGINS_DISABLE", word)
        assert plugin(PluginHost.load(), "loud").state == "blocked"


def test_an_entry_point_name_used_twice_loads_neither(install: Install) -> None:
    install("lr_one", AGENT, point="tiny")
    install("lr_two", "raise RuntimeError('imported')", point="tiny")
    infos = [info for info in PluginHost.load().plugins if info.name == "tiny"]
    assert [info.state for info in infos] == ["failed", "failed"]
    assert all("entry-point name 'tiny' is used by tiny (lr-one 2.5) and tiny (lr-two 2.5)" in info.reason for info in infos)


def test_an_unknown_name_lists_what_is_known_and_what_is_broken(install: Install) -> None:
    install("lr_bad", "1 / 0")
    with pytest.raises(UnknownNameError) as error:
        PluginHost.load().agent("nopp", {})
    assert str(error.value).startswith("unknown agent 'nopp'; known: ")
    assert {"nop", "oracle"} <= set(error.value.known)
    assert "did you mean 'nop'?" in str(error.value)
    assert "`longrein plugins`" in str(error.value)
    assert "plugin lr_bad (lr-bad 2.5) is failed: cannot be loaded: ZeroDivisionError" in str(error.value)


def test_options_are_checked_under_their_section(install: Install) -> None:
    install("lr_tiny", AGENT)
    host = PluginHost.load()
    with pytest.raises(UnknownNameError, match=r"unknown key in \[agents\.tiny\] 'efort'; known: effort; did you mean 'effort'\?"):
        host.agent("tiny", {"efort": 1})
    with pytest.raises(ConfigError, match=r"\[agents\.tiny\] effort must be a whole number, got 'high'"):
        host.agent("tiny", {"effort": "high"})
    with pytest.raises(UnknownNameError, match=r"unknown key in \[reward\.options\] 'x'; known: none"):
        host.reward("binary", {"x": 1})


def test_a_class_that_cannot_be_made_is_attributed(install: Install) -> None:
    refusing = "    def __init__(self, options):\n        raise OSError('no disk')\n    def launch"
    install("lr_tiny", AGENT.replace("    def launch", refusing))
    with pytest.raises(PluginError, match=r"agent 'tiny' cannot be made: OSError: no disk \(lr_tiny\.py:\d+\)"):
        PluginHost.load().agent("tiny", {})


def test_a_config_can_name_a_module_that_has_no_entry_point(install: Install, tmp_path: Path) -> None:
    (tmp_path / "lr_loose").mkdir()
    (tmp_path / "lr_loose" / "__init__.py").touch()
    (tmp_path / "lr_loose" / "extra.py").write_text(AGENT, encoding="utf-8")
    host = PluginHost.load(["lr_loose.extra"])
    assert (plugin(host, "lr_loose.extra").kind, plugin(host, "lr_loose.extra").active) == ("module", True)
    assert host.agent("tiny", {}).name == "tiny"


def test_a_config_can_name_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AGENT, encoding="utf-8")
    host = PluginHost.load(["./mine.py"], folder=tmp_path)
    assert plugin(host, "mine.py").origin == str(tmp_path / "mine.py")
    assert host.agent("tiny", {}).name == "tiny"
    assert PluginHost.load(host.use, folder=Path("/")).plugins == host.plugins  # as a child or a resumed run does


async def test_only_named_packages_override_and_in_the_order_of_use(install: Install) -> None:
    answer = "def longrein_compute_reward(rollout): return Reward(1.0, reason=__name__)"
    for name in ("lr_one", "lr_two", "lr_six"):
        install(name, f"from longrein.model import Reward\n{MARKED}{answer}")
    ended = SessionResult("s", "nop", Outcome("completed"), Trajectory())
    rollout = Rollout("r", "g", "nop", "practice", "t", "d", 0, 0, ended, Verdict("passed", 1.0))
    for use in (["lr_one", "lr_two"], ["lr_two", "lr-one"], ["lr_six"]):
        host = PluginHost.load(use)
        reward = await host.compute_reward(rollout, host.reward("binary"), [])
        first = use[0]
        assert (reward.reason, reward.decided_by) == (first, f"plugin:{first}")
        assert [info.name for info in host.plugins if info.active] == sorted(word.replace("-", "_") for word in use)
    host = PluginHost.load()
    assert (await host.compute_reward(rollout, host.reward("binary"), [])).decided_by == "reward:binary"


def test_what_a_config_names_must_exist_and_work(install: Install, tmp_path: Path) -> None:
    install("lr_tiny", AGENT)
    with pytest.raises(PluginError, match=r"there is no file /.*absent\.py; files are looked up from the config's folder"):
        PluginHost.load(["./absent.py"], folder=tmp_path)
    with pytest.raises(PluginError, match=r"no plugin or module 'lr_tny'; known: .*; did you mean 'lr_tiny'\?"):
        PluginHost.load(["lr_tny"])
    (tmp_path / "broken.py").write_text("x = 1 +", encoding="utf-8")
    with pytest.raises(PluginError, match=r"/broken\.py'.* is failed: cannot be loaded: SyntaxError"):
        PluginHost.load(["./broken.py"], folder=tmp_path)
    (tmp_path / "mine.py").write_text(AGENT.replace("tiny", "mine"), encoding="utf-8")
    host = PluginHost.load(["./mine.py", f"../{tmp_path.name}/mine.py"], folder=tmp_path)
    assert [info.name for info in host.plugins if info.active] == ["mine.py"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text(AGENT, encoding="utf-8")
    with pytest.raises(PluginError, match=r"other/mine\.py\) is failed: another plugin is named 'mine\.py'; rename this one"):
        PluginHost.load(["./mine.py", "other/mine.py"], folder=tmp_path)
    with pytest.raises(PluginError, match=r"'textwrap'.* is failed: implements no hook"):
        PluginHost.load(["textwrap"])


def test_importing_longrein_and_listing_plugins_loads_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "trl", "openenv", "datasets", "accelerate", "peft", "numpy", "httpx", "uvicorn"}
    code = (
        "import sys, json, longrein; first = sorted(sys.modules); from longrein.plugins import PluginHost; "
        "PluginHost.load(); print(json.dumps([first, sorted(sys.modules)]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    first, loaded = (set(names) for names in json.loads(out))
    assert not heavy & loaded
    # The plain import is what scripts and completions pay for: not even the host, asyncio or the command line.
    assert not {"asyncio", "typer", "rich", "longrein.plugins.host"} & first
