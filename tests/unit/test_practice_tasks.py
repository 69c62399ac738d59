"""The practice task set: its splits, its examples and its candidates."""

import subprocess
import sys
from pathlib import Path

import pytest

from longrein.errors import TaskError
from longrein.options import structure
from longrein.practice.exercises import FAMILIES, Exercise, exercises
from longrein.practice.tasks import SOLUTION, PracticeOptions, PracticeTasks
from longrein.practice.transcripts import check_output


def tasks(**options):
    return list(PracticeTasks(structure(PracticeOptions, options, where="[taskset.options]")).tasks())


def answer(program: str, stdin: str) -> str:
    return subprocess.run([sys.executable, "-c", program], input=stdin, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def one_of_each() -> list[Exercise]:
    return [Exercise(family, word, 9) for family in FAMILIES for word in FAMILIES[family].operations]


def test_the_splits_share_no_task_and_cover_every_exercise():
    train, evaluation = tasks(split="train", n=180), tasks(split="eval", n=60)
    ids = [task.id for task in (*train, *evaluation)]
    assert len(set(ids)) == len(ids) == len(exercises())
    assert len({task.digest for task in (*train, *evaluation)}) == len(ids)


def test_every_operation_has_its_turn_and_the_seed_draws_the_constants():
    first = [task.id.rsplit("-", 1)[0] for task in tasks(n=12)]
    assert sorted(first[:6]) == sorted(set(first))
    assert first[:6] == first[6:]
    assert [t.id for t in tasks(n=12)] == [t.id for t in tasks(n=12)] != [t.id for t in tasks(n=12, seed=1)]


def test_more_tasks_than_there_are_is_an_error_with_both_numbers():
    with pytest.raises(TaskError, match="60 tasks, n = 61"):
        tasks(split="eval", n=61)


@pytest.mark.parametrize(
    "task_id", ["", "number", "number-increased", "number-increased-1", "number-increased-007", "number-total-7", "x-y-7-8"]
)
def test_an_unknown_task_is_named(task_id):
    with pytest.raises(TaskError, match="number-increased-7"):
        PracticeTasks().hidden(task_id)


def test_the_prompt_shows_the_public_cases_and_none_of_the_hidden_ones():
    for task in tasks(n=24):
        hidden = PracticeTasks().hidden(task.id)
        assert hidden["kind"] == "stdin"
        assert hidden["compare"] == "lines"
        assert len(hidden["cases"]) == 8
        assert len(task.public.examples) == 2
        assert task.public.check in task.public.files
        for example in task.public.examples:
            assert example.stdin in task.public.prompt
            assert example.stdout in task.public.prompt
        assert not any(case["input"] in text for case in hidden["cases"] if " " in case["input"] for text in task.public.files.values())
        assert '"' not in task.public.prompt, "opencode escapes double quotes: the transcripts would differ from what it sends"


def test_exactly_one_candidate_passes_the_hidden_cases_and_the_solution_is_it(one_of_each):
    for exercise in one_of_each:
        cases = PracticeTasks().hidden(exercise.id)["cases"]
        right = [w for w in exercise.candidates if all(answer(exercise.candidate(w), c["input"]) == c["output"] for c in cases[:3])]
        assert right == [exercise.word]
        assert PracticeTasks().solution(exercise.id) == {SOLUTION: exercise.candidate(exercise.word)}


def test_operations_differ_on_hidden_cases_of_every_exercise():
    for exercise in exercises():
        operations = FAMILIES[exercise.family].operations
        cases = PracticeTasks().hidden(exercise.id)["cases"]
        for word in set(exercise.candidates) - {exercise.word}:
            values = [[int(v) for v in case["input"].split()] for case in cases]
            given = [v if exercise.family == "list" else v[0] for v in values]
            assert any(f"{operations[word].compute(v, exercise.k)}\n" != c["output"] for v, c in zip(given, cases, strict=True)), exercise


def test_transcripts_show_what_the_check_script_really_prints(one_of_each, tmp_path: Path):
    for exercise in one_of_each:
        task = next(
            task
            for split in ("train", "eval")
            for task in tasks(split=split, n=60)
            if task.id.startswith(f"{exercise.family}-{exercise.word}")
        )
        exercise = Exercise.of(task.id)
        for word in exercise.candidates:
            place = tmp_path / task.id / word
            for name, text in {**task.public.files, SOLUTION: exercise.candidate(word)}.items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_text(text)
            done = subprocess.run([sys.executable, task.public.check], cwd=place, capture_output=True, text=True, check=False)
            assert done.stdout.strip() == check_output(exercise, word)
            assert (done.returncode == 0) == (word == exercise.word)
