// LaTeX as MathML: the commands that solutions of problems use. What has another one is shown as it was written.

const GREEK = "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω infty ∞ ell ℓ emptyset ∅ partial ∂ circ ∘ degree ° angle ∠ triangle △ ldots … cdots ⋯ dots …";
const SIGNS = "cdot · times × div ÷ pm ± mp ∓ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ equiv ≡ sim ∼ cong ≅ propto ∝ to → rightarrow → Rightarrow ⇒ implies ⟹ iff ⟺ leftarrow ← mapsto ↦ in ∈ notin ∉ subset ⊂ subseteq ⊆ cup ∪ cap ∩ setminus ∖ land ∧ lor ∨ neg ¬ forall ∀ exists ∃ mid ∣ parallel ∥ perp ⊥ therefore ∴ because ∵ ast ∗ star ⋆ oplus ⊕ otimes ⊗ sum ∑ prod ∏ int ∫ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ langle ⟨ rangle ⟩ lvert | rvert | vert | prime ′";
const tableFrom = (words) => Object.fromEntries(words.split(" ").reduce((pairs, word, i, all) => (i % 2 ? [...pairs, [all[i - 1], word]] : pairs), []));
const [LETTERS, OPERATORS] = [tableFrom(GREEK), tableFrom(SIGNS)];
const FUNCTIONS = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim max min gcd lcm mod det dim deg arg sup inf".split(" "));
const SPACES = new Set([",", ";", ":", "!", " ", "quad", "qquad"]);
const LIMITS = new Set(["∑", "∏", "lim", "max", "min"]);

function mml(tag, children, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, value);
  node.append(...[children].flat());
  return node;
}

class Latex {
  constructor(source) {
    this.tokens = source.match(/\\[a-zA-Z]+|\\.|[0-9]+(?:[.,][0-9]+)*|\s+|[^]/g) ?? [];
    this.at = 0;
  }

  peek() {
    while (/^\s+$/.test(this.tokens[this.at] ?? "")) this.at++;
    return this.tokens[this.at];
  }

  next() {
    const token = this.peek();
    if (token === undefined) throw new Error("it ends too early");
    this.at++;
    return token;
  }

  take(token) {
    if (this.next() !== token) throw new Error(`expected ${token}`);
  }

  // The text between braces, as it was written.
  words() {
    this.take("{");
    let [text, depth] = ["", 1];
    for (;;) {
      const token = this.tokens[this.at++];
      if (token === undefined) throw new Error("it ends too early");
      depth += token === "{" ? 1 : token === "}" ? -1 : 0;
      if (!depth) return text;
      text += token;
    }
  }

  row(ends) {
    const found = [];
    while (!ends.includes(this.peek())) found.push(this.scripted());
    return mml("mrow", found);
  }

  group() {
    if (this.peek() !== "{") return this.atom();
    this.next();
    const inside = this.row(["}"]);
    this.next();
    return inside;
  }

  scripted() {
    const base = this.atom();
    const scripts = {};
    for (;;) {
      const token = this.peek();
      if (token === "'") { this.next(); scripts["^"] = mml("mo", "′"); continue; }
      if (token !== "^" && token !== "_") break;
      this.next();
      scripts[token] = this.group();
    }
    const [low, high] = [scripts._, scripts["^"]];
    const limits = LIMITS.has(base.textContent);
    if (low && high) return mml(limits ? "munderover" : "msubsup", [base, low, high]);
    if (low) return mml(limits ? "munder" : "msub", [base, low]);
    return high ? mml(limits ? "mover" : "msup", [base, high]) : base;
  }

  atom() {
    const token = this.next();
    if (token === "{") { this.at--; return this.group(); }
    if (token === "}" || token === "&" || token === "\\\\") throw new Error(`unexpected ${token}`);
    if (/^[0-9]/.test(token)) return mml("mn", token);
    if (/^\p{L}$/u.test(token)) return mml("mi", token);
    if (!token.startsWith("\\")) return mml("mo", token === "-" ? "−" : token === "~" ? " " : token);
    return this.command(token.slice(1));
  }

  command(name) {
    if (name in LETTERS) return mml("mi", LETTERS[name]);
    if (name in OPERATORS) return mml("mo", OPERATORS[name]);
    if (FUNCTIONS.has(name)) return mml("mi", name);
    if (SPACES.has(name)) return mml("mspace", [], { width: name.endsWith("quad") ? "1em" : "0.2em" });
    if ("{}%$&#_|".includes(name)) return mml("mo", name);
    if (/^(d|t|c)?frac$/.test(name)) return mml("mfrac", [this.group(), this.group()]);
    if (/^(d|t)?binom$/.test(name)) return mml("mrow", [mml("mo", "("), mml("mfrac", [this.group(), this.group()], { linethickness: "0" }), mml("mo", ")")]);
    if (name === "sqrt") {
      if (this.peek() !== "[") return mml("msqrt", this.group());
      this.next();
      const degree = this.row(["]"]);
      this.next();
      return mml("mroot", [this.group(), degree]);
    }
    if (/^(text|textbf|textit|textrm|mathrm|operatorname|mbox)$/.test(name)) return mml("mtext", this.words());
    if (/^(mathbf|boldsymbol|mathbb|mathcal|mathit|displaystyle|limits)$/.test(name)) return this.peek() === "{" ? this.group() : mml("mrow", []);
    if (name === "boxed" || name === "fbox") return mml("mrow", this.group(), { class: "boxed" });
    if (/^(overline|bar|hat|vec|underline)$/.test(name)) return mml(name === "underline" ? "munder" : "mover", [this.group(), mml("mo", { hat: "^", vec: "→" }[name] ?? "‾")]);
    if (/^(left|right|[bB]igg?[lr]?)$/.test(name)) {
      const sign = this.next();
      return mml("mo", sign === "." ? "" : OPERATORS[sign.slice(1)] ?? sign.replace("\\", ""));
    }
    if (name === "begin") return this.table(this.words());
    throw new Error(`\\${name}`);
  }

  table(kind) {
    const sides = { pmatrix: "()", bmatrix: "[]", vmatrix: "||", cases: "{ ", matrix: "  ", aligned: "  ", "align*": "  ", align: "  ", array: "  " }[kind];
    if (!sides) throw new Error(kind);
    if (kind === "array") this.words();
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(mml("mtd", this.row(["&", "\\\\", "\\end"])));
      const token = this.next();
      if (token === "\\\\") rows.push([]);
      if (token === "\\end") break;
    }
    this.words();
    return mml("mrow", [mml("mo", sides[0]), mml("mtable", rows.map((cells) => mml("mtr", cells))), mml("mo", sides[1])]);
  }
}

const MATHS = /\$\$([^$]+)\$\$|\\\[([^]+?)\\\]|\\\(([^]+?)\\\)|\$([^$\n]*[\\^_={}][^$\n]*)\$|(\\boxed\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})/g;

// `text` with its formulas as MathML; prices in dollars stay as they are.
function mathsOf(text) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(MATHS)) {
    const source = match.slice(1).find((part) => part !== undefined);
    try {
      const latex = new Latex(source);
      const shown = mml("math", latex.row([undefined]), { title: match[0], display: match[1] ?? match[2] ? "block" : null });
      found.push(text.slice(from, match.index), shown);
      from = match.index + match[0].length;
    } catch { /* it stays as it was written */ }
  }
  return [...found, text.slice(from)];
}
