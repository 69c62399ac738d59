// The data of the page: compressed blocks, unpacked when something in them is looked at.

const KEPT_BLOCKS = 64;

/** Return the value that a script element holds as raw deflate in base64. */
async function unpack(element) {
  const text = atob(element.textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/** Values by number. A block stays unpacked while it is among the last that were used. */
class Store {
  /** firsts: the number of the first value of each block. */
  constructor(firsts) {
    this.firsts = firsts;
    this.elements = document.querySelectorAll("script.block");
    this.unpacked = new Map();
  }

  async get(number) {
    const at = this.#blockOf(number);
    const values = await this.#block(at);
    return values[number - this.firsts[at]];
  }

  all(numbers) {
    return Promise.all(numbers.map((number) => this.get(number)));
  }

  #blockOf(number) {
    let low = 0;
    let high = this.firsts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.firsts[middle] <= number) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #block(at) {
    const found = this.unpacked.get(at) ?? unpack(this.elements[at]);
    this.unpacked.delete(at);
    this.unpacked.set(at, found);
    if (this.unpacked.size > KEPT_BLOCKS) this.unpacked.delete(this.unpacked.keys().next().value);
    return found;
  }
}
