//! Rewrites in place the parts of CUDA C++ that no host compiler reads: `asm` statements become calls of functions
//! named after the instruction (`machine/ptx.h`), and dynamic shared memory becomes a pointer. Vectors are kept whole.
//! Lines stay where they are.

use precast_core::source::words;

/// Rewrites a source.
pub fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut vector_ends = None;
    while let Some(character) = rest.chars().next() {
        vector_ends = vector_end(rest).or(vector_ends);
        if vector_ends == Some(rest.len()) {
            out.push_str(WHOLE);
        }
        if rest.starts_with("//") {
            let (comment, after) = rest.split_at(rest.find('\n').unwrap_or(rest.len()));
            out.push_str(comment);
            rest = after;
        } else if let Some((length, replaced)) = asm(rest).or_else(|| dynamic_shared(rest)).filter(|_| !in_word(&out)) {
            let (original, after) = rest.split_at(length);
            out.push_str(&replaced);
            out.extend(original.chars().filter(|c| *c == '\n'));
            rest = after;
        } else {
            out.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    out
}

/// A member without size, but volatile: the compiler does not take such a structure apart. It loads and stores a vector
/// as one, like a GPU's compiler, where it would load and store each element.
const WHOLE: &str = "volatile char whole[0]; ";

/// Returns the bytes of `text` behind the structure at its start; none unless that is aligned as vectors are.
fn vector_end(text: &str) -> Option<usize> {
    let start = text.strip_prefix("struct alignas(")?.split_once('{')?.1;
    Some(start.len() - closing(start, '{', '}')?)
}

fn in_word(before: &str) -> bool {
    before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// `extern __shared__ ... name[]` at the start of `text`: its length, and a pointer of that name. Outside of a function
/// g++ refuses it.
fn dynamic_shared(text: &str) -> Option<(usize, String)> {
    let declaration = text.strip_prefix("extern")?.trim_start().strip_prefix("__shared__")?;
    let end = declaration.find("[]").filter(|end| !declaration[..*end].contains(';'))?;
    let (kind, name) = declaration[..end].trim_end().rsplit_once(|char: char| char.is_whitespace())?;
    let mut kind = kind.trim().to_owned();
    for attribute in ["__align__(", "alignas("] {
        while let Some((before, rest)) = kind.clone().split_once(attribute) {
            kind = format!("{before}{}", &rest[closing(rest, '(', ')')? + 1..]).trim().to_owned();
        }
    }
    let pointer = format!("{kind}* {name} = ({kind}*)({{ simt_dynamic_shared(); }})");
    Some((text.len() - declaration.len() + end + 2, pointer))
}

/// An `asm` statement, without its semicolon, at the start of `text`: its length, and the call.
fn asm(text: &str) -> Option<(usize, String)> {
    let start = text.strip_prefix("asm")?.trim_start();
    let start = start.strip_prefix("volatile").unwrap_or(start).trim_start().strip_prefix('(')?;
    let end = closing(start, '(', ')')?;
    let (template, operands) = operands(&start[..end]);
    Some((text.len() - start.len() + end + 1, call(&template, &operands)))
}

/// Returns the bytes of `text` behind the bracket that closes the one open at its start.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let (mut depth, mut quoted) = (0, false);
    for (index, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            _ if quoted => {}
            _ if character == open => depth += 1,
            _ if character == close && depth == 0 => return Some(index),
            _ if character == close => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The template of a statement's body, and the expressions of its operands: `"template" : "=f"(out) : "f"(in) : ...`.
fn operands(body: &str) -> (String, Vec<&str>) {
    let (mut template, mut end) = (String::new(), 0);
    for (_, own) in words::pieces(body).take_while(|(_, own)| *own != ":") {
        template += own.strip_prefix('"').and_then(|own| own.strip_suffix('"')).unwrap_or_default();
        end += own.len();
    }
    let (mut expressions, mut rest) = (Vec::new(), &body[end..]);
    while let Some((_, after)) = rest.split_once('(') {
        let close = closing(after, '(', ')').unwrap_or(after.len());
        expressions.push(&after[..close]);
        rest = after.get(close + 1..).unwrap_or_default();
    }
    (template, expressions)
}

/// The call an instruction becomes; of several, with registers of their own, a block of calls.
fn call(template: &str, operands: &[&str]) -> String {
    let text = template.replace("\\n", " ");
    let text = text.trim();
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let statements = || inner.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    let registers: Vec<(&str, &str)> = statements().filter_map(declared).flatten().collect();
    let calls: Vec<String> = statements()
        .filter(|statement| declared(statement).is_none())
        .map(|instruction| one_call(instruction, operands, &registers))
        .collect();
    match &calls[..] {
        [] => "(void)0".to_owned(),
        [only] if registers.is_empty() => only.clone(),
        _ => {
            let registers =
                registers.iter().map(|(name, kind)| format!("{kind} {REGISTER}{name}; ")).collect::<String>();
            format!("({{ {registers}{}; }})", calls.join("; "))
        }
    }
}

/// Prefix of the names of an `asm` statement's registers, so that they are no others.
const REGISTER: &str = "ptx_";

/// The registers that a statement declares, and the types they have here.
fn declared(statement: &str) -> Option<Vec<(&str, &str)>> {
    let (kind, names) = statement.strip_prefix(".reg .")?.split_once(' ')?;
    let kind = match kind {
        "pred" => "bool",
        "b64" | "u64" => "uint64_t",
        "b32" | "u32" => "uint32_t",
        _ => "ptx::no_such_type",
    };
    Some(names.split(',').map(|name| (name.trim(), kind)).collect())
}

/// The call of one instruction.
fn one_call(instruction: &str, operands: &[&str], registers: &[(&str, &str)]) -> String {
    let (opcode, written) = instruction.split_once(' ').unwrap_or((instruction, ""));
    let arguments = written.split(|c: char| !c.is_ascii_alphanumeric() && c != '%' && c != '_');
    let arguments = arguments.filter(|word| !word.is_empty() && *word != "_").map(|word| {
        if let Some(special) = word.strip_prefix("%%") {
            return format!("ptx::special_{special}()");
        }
        match word.strip_prefix('%').map(str::parse::<usize>) {
            Some(Ok(index)) => {
                operands.get(index).map_or("ptx::no_such_operand", |expression| expression.trim()).to_owned()
            }
            _ if registers.iter().any(|(name, _)| *name == word) => format!("{REGISTER}{word}"),
            _ => word.to_owned(),
        }
    });
    // A predicate guards what follows it: no kernel has one, and no function is named so.
    format!(
        "ptx::{}({})",
        opcode.replace("::", "__").replace(['.', '@'], "_"),
        arguments.collect::<Vec<_>>().join(", ")
    )
}

/// Returns the text of the last kernel of this name before its body: from the end of what stands before.
pub fn heading<'a>(text: &'a str, name: &str) -> &'a str {
    let headings = text.match_indices("__global__").map(|(at, _)| {
        let end = text[at..].find(['{', ';']).map_or(text.len(), |end| at + end);
        &text[text[..at].rfind(['}', ';']).map_or(0, |end| end + 1)..end]
    });
    let is_named = |heading: &&str| {
        let mut places = heading.match_indices(name).map(|(at, _)| heading.split_at(at));
        places.any(|(before, rest)| !in_word(before) && rest[name.len()..].trim_start().starts_with('('))
    };
    headings.filter(is_named).last().unwrap_or_default()
}

/// An argument of the last use of a macro in preprocessed text: what a kernel says of its launches.
pub fn argument<'a>(text: &'a str, name: &str, index: usize) -> Option<&'a str> {
    let start = text.rfind(&format!("{name}("))? + name.len() + 1;
    let mut rest = &text[start..start + closing(&text[start..], '(', ')')?];
    for _ in 0..index {
        rest = rest.split_once(',')?.1;
    }
    Some(rest.split(',').next().unwrap_or(rest).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_become_calls() {
        let statement = "asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r.v[i]) : \"f\"(f(v, 1)), \"f\"(v[0]));";
        assert_eq!(translate(statement), "ptx::cvt_rn_bf16x2_f32(r.v[i], f(v, 1), v[0]);");
        let operands = "::\"r\"(s), \"l\"(g), \"r\"(v ? 16 : 0)\n: \"memory\"";
        let copy = format!("asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" {operands});");
        assert_eq!(translate(&copy), "ptx::cp_async_cg_shared_global(s, g, 16, v ? 16 : 0)\n;");
        assert_eq!(
            translate("asm volatile(\"cp.async.commit_group;\" ::: \"memory\");"),
            "ptx::cp_async_commit_group();"
        );
        assert_eq!(translate("asm volatile(\"\" : \"+r\"(x));"), "(void)0;");
        let several = "asm volatile(\"{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; \
            \"\n\"mbarrier.arrive.shared::\
                       cluster.b64 _, [there];}\"::\"r\"(there), \"r\"(block));";
        assert_eq!(
            translate(several),
            "({ uint32_t ptx_there; ptx::mapa_shared__cluster_u32(ptx_there, there, block); \
             ptx::mbarrier_arrive_shared__cluster_b64(ptx_there); })\n;"
        );
        assert_eq!(
            translate("asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(r));"),
            "ptx::mov_u32(r, ptx::special_cluster_ctarank());"
        );
        let parts = "asm(\"max.bf16x2 %0, \"\n    \"%0, %1;\" : \"+r\"(a) : \"r\"(b));";
        assert_eq!(translate(parts), "ptx::max_bf16x2(a, a, b)\n;");
    }

    #[test]
    fn what_a_kernel_says_of_its_launches_is_found() {
        let text = "void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(f(1, 2) + 1, 3) entry(p)";
        assert_eq!(argument(text, "__cluster_dims__", 0), Some("CLUSTER"));
        assert_eq!(argument("void __launch_bounds__(384, BLOCKS) f()", "__launch_bounds__", 1), Some("BLOCKS"));
        assert_eq!(argument("void __launch_bounds__(384) f()", "__launch_bounds__", 1), None);
        assert_eq!(argument("void f()", "__cluster_dims__", 0), None);
    }

    #[test]
    fn dynamic_shared_memory_becomes_a_pointer() {
        for (declaration, kind) in [
            ("extern __shared__ __align__(128) unsigned char slices[];", "unsigned char"),
            ("extern __shared__ float4 slices[];", "float4"),
            ("extern\t__shared__ alignas(16) float __align__(8) slices[];", "float"),
        ] {
            assert_eq!(translate(declaration), format!("{kind}* slices = ({kind}*)({{ simt_dynamic_shared(); }});"));
        }
    }

    #[test]
    fn a_kernel_of_several_says_its_own_launches() {
        let text = "__global__ void __launch_bounds__(64, 2) f(int n) { f(n); }\n__global__ void ff(int n);\n\
                    extern \"C\" __global__ void __launch_bounds__(128, 3) ff(int n) {";
        let resident = |name| argument(heading(text, name), "__launch_bounds__", 1);
        assert_eq!((resident("f"), resident("ff"), resident("g")), (Some("2"), Some("3"), None));
        let before = "int one;\n__cluster_dims__(2, 1, 1) __global__ void f(int n) {";
        assert_eq!(argument(heading(before, "f"), "__cluster_dims__", 0), Some("2"));
    }

    #[test]
    fn vectors_stay_whole() {
        let vector = "template <> struct alignas(16) vector<float, 4> {\n    float v[4];\n};";
        let whole = "template <> struct alignas(16) vector<float, 4> {\n    float v[4];\nvolatile char whole[0]; };";
        assert_eq!(translate(vector), whole);
    }

    #[test]
    fn comments_and_other_words_stay() {
        for text in ["// asm(\"x\")\n", "plasm(\"x\")", "extern \"C\" void f();"] {
            assert_eq!(translate(text), text);
        }
    }
}
