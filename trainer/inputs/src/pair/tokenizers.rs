//! Two tokenizers compared by what they do to text, however their files say it.

use std::collections::{BTreeSet, HashMap, HashSet};

use itertools::Itertools;
use precast_system::count;

use crate::tokenizer::{SpecialTokens, Tokenizer};

/// Tokens and merges that a line names.
const EXAMPLES: usize = 5;

/// Text of the kinds that tokenizers split differently. It starts with a letter, which some put a space before and
/// some do not once a space is there.
const TEXT: &str = "The quick brown fox can't JUMP over 13 lazy dogs, i'll say: \"won't\" (x+=1)!\n\
    fn main() {\n\tlet total = values[0x1F] * 3.14159e-10;    // two  spaces\n\n\n        return total;\r\n}\n\
    On 2024-02-29 she paid $1,234,567.89 — naïve café, e\u{301}tude, Ångström, ﬁne, ½ of Ⅻ.\n\
    Здравствуйте, Καλημέρα, שלום, مرحبا, नमस्ते, สวัสดี, 中文的文字和標點。日本語テキスト、한국어 문장.\n\
    😀👩‍👩‍👧‍👦🇩🇪 ... ??? ___ === <tag attr='1'/> http://example.org/a_b-c?d=e&f=%20 user@example.com \u{a0}\u{200b}end";

/// What a comparison found.
#[derive(Debug, Default)]
pub(super) struct TokenizerComparison {
    /// What makes the same text other ids: none may be.
    pub differences: Vec<String>,
    /// Tokens that only one has.
    pub only: Vec<String>,
}

/// Compares a teacher's tokenizer with a student's, or others under the names of what has them: ids of the tokens that
/// both have, merges among those, and the ids of a text.
pub(super) fn compare(who: [&str; 2], teacher: &Tokenizer, student: &Tokenizer) -> TokenizerComparison {
    let (of_teacher, of_student) = rayon::join(|| View::of(teacher), || View::of(student));
    let (of_teacher, of_student) = (&of_teacher, &of_student);
    let mut comparison = TokenizerComparison::default();
    let kinds = (teacher.kind() != student.kind())
        .then(|| format!("the {}'s is {}, the {}'s {}", who[0], teacher.kind(), who[1], student.kind()));
    let tokens = [kinds, ids(of_teacher, of_student), texts(of_teacher, of_student)].into_iter().flatten();
    let lines = tokens.chain(merges(who, of_teacher, of_student)).chain(encodings(who, teacher, student));
    comparison.differences.extend(lines.map(|line| format!("  {line}")));
    for (who, one, other) in [(who[0], of_teacher, of_student), (who[1], of_student, of_teacher)] {
        let only = one.ids.iter().filter(|(text, _)| !other.ids.contains_key(*text)).map(|(text, id)| (id, text));
        let name = |(id, text): &(&u32, &String)| format!("`{text}` ({id})");
        comparison.only.extend(listed("token", &format!("only the {who} has"), only, name));
    }
    comparison
}

/// A tokenizer in parts.
struct View {
    ids: HashMap<String, u32>,
    added: HashSet<String>,
    merges: Option<Vec<(String, String)>>,
}

impl View {
    fn of(tokenizer: &Tokenizer) -> Self {
        Self { ids: tokenizer.vocabulary(), added: tokenizer.added(), merges: tokenizer.merges() }
    }
}

/// Counts items and names the first few, in order; none if there are none.
fn listed<T: Ord>(
    what: &str,
    about: &str,
    all: impl Iterator<Item = T>,
    name: impl Fn(&T) -> String,
) -> Option<String> {
    let all: BTreeSet<T> = all.collect();
    let more = if all.len() > EXAMPLES { ", ..." } else { "" };
    let first = all.iter().take(EXAMPLES).map(name).join(", ");
    (!all.is_empty()).then(|| format!("{} {about}: {first}{more}", count(all.len(), what)))
}

/// Tokens of both with another id in each.
fn ids(teacher: &View, student: &View) -> Option<String> {
    let both = student.ids.iter().filter_map(|(text, id)| Some((*id, *teacher.ids.get(text)?, text)));
    let moved = both.filter(|(mine, theirs, _)| mine != theirs);
    listed("token", "with other ids", moved, |(mine, theirs, text)| format!("`{text}` is {theirs} and {mine}"))
}

/// Ids of both with another text in each. Added tokens may be renamed, as fine-tuned models do with reserved ones;
/// others are what words are split into.
fn texts(teacher: &View, student: &View) -> Option<String> {
    let plain = |view: &View| -> HashMap<u32, String> {
        let plain = view.ids.iter().filter(|(text, _)| !view.added.contains(*text));
        plain.map(|(text, id)| (*id, text.clone())).collect()
    };
    let (of_teacher, of_student) = (plain(teacher), plain(student));
    let both = of_student.iter().filter_map(|(id, text)| Some((*id, of_teacher.get(id)?, text)));
    let renamed = both.filter(|(_, theirs, mine)| theirs != mine);
    listed("id", "of other tokens", renamed, |(id, theirs, mine)| format!("{id} is `{theirs}` and `{mine}`"))
}

/// Merges among tokens that both have: those of one alone, and the first whose turn is another's.
fn merges(who: [&str; 2], teacher: &View, student: &View) -> Vec<String> {
    let (Some(of_teacher), Some(of_student)) = (&teacher.merges, &student.merges) else { return Vec::new() };
    // Added tokens are found before any merge. Runs of spaces have equal scores in SentencePiece models, and converters
    // order them differently: which goes first changes nothing.
    let shared = |token: &str| {
        teacher.ids.contains_key(token)
            && student.ids.contains_key(token)
            && !teacher.added.contains(token)
            && !student.added.contains(token)
            && !token.chars().all(|c| c == '▁')
    };
    let known = |(left, right): &&(String, String)| {
        [left, right].into_iter().all(|part| teacher.ids.contains_key(part) && student.ids.contains_key(part))
            && shared(&format!("{left}{right}"))
    };
    let common = [of_teacher, of_student].map(|merges| merges.iter().filter(known).collect::<Vec<_>>());
    let sets = common.each_ref().map(|merges| merges.iter().copied().collect::<HashSet<_>>());
    let mut lines = Vec::new();
    for (who, one, other) in [(who[0], &sets[0], &sets[1]), (who[1], &sets[1], &sets[0])] {
        let only = one.difference(other).copied();
        let name = |(left, right): &&(String, String)| format!("`{left}` + `{right}`");
        lines.extend(listed("merge", &format!("only the {who} has"), only, name));
    }
    if lines.is_empty() {
        // A token that is made in several ways has its turn where the first of them has.
        let [first, second] = common
            .map(|merges| merges.into_iter().map(|(left, right)| format!("{left}{right}")).unique().collect_vec());
        if let Some((turn, (theirs, mine))) = first.iter().zip(&second).enumerate().find(|(_, (a, b))| a != b) {
            let [one, other] = who;
            lines.push(format!("merge {turn} makes `{theirs}` in the {one}'s and `{mine}` in the {other}'s"));
        }
    }
    lines
}

/// Where the ids of the text part.
fn encodings([one, other]: [&str; 2], teacher: &Tokenizer, student: &Tokenizer) -> Option<String> {
    let (theirs, mine) = match (teacher.encode(TEXT, SpecialTokens::Omit), student.encode(TEXT, SpecialTokens::Omit)) {
        (Ok(theirs), Ok(mine)) => (theirs, mine),
        (Err(error), _) => return Some(format!("the {one}'s fails: {error}")),
        (_, Err(error)) => return Some(format!("the {other}'s fails: {error}")),
    };
    let at = theirs
        .iter()
        .zip(&mine)
        .position(|(a, b)| a != b)
        .or_else(|| (theirs.len() != mine.len()).then_some(theirs.len().min(mine.len())))?;
    let from = |ids: &[u32]| format!("{:?}", &ids[at..ids.len().min(at + EXAMPLES)]);
    Some(format!(
        "a text of {} bytes is {} tokens in the {one}'s and {} in the {other}'s; from token {at} on {} and {}",
        TEXT.len(),
        theirs.len(),
        mine.len(),
        from(&theirs),
        from(&mine)
    ))
}
