use std::path::{Path, PathBuf};
use std::sync::Arc;

use precast_kernels::abi::MASKED_TOKEN;

use super::*;
use crate::added_tokens::AddedTokens;
use crate::chat::{Chat, ChatSource, ChatTemplate, ChatVariables};
use crate::tokenizer::{SpecialTokens, Tokenizer};

fn reader() -> Reader {
    Reader { vocab: 100, ..Reader::default() }
}

/// A reader of the words `w0` to `w99`.
fn words() -> Reader {
    let vocab: serde_json::Map<String, serde_json::Value> = (0..100).map(|id| (format!("w{id}"), id.into())).collect();
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    });
    let tokenizer = Tokenizer::new(Path::new("words"), || json.to_string().parse(), &AddedTokens::default()).unwrap();
    Reader { tokenizer: Some(Arc::new(tokenizer)), eos: Some(99), ..reader() }
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The message, without the scratch directory.
    fn message(&self, path: &Path, reader: Reader) -> String {
        let error = dataset([path], 7, Chunking::Stream, reader).unwrap_err().to_string();
        error.replace(&self.0.path().display().to_string(), "DIR")
    }
}

fn ids(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn dataset<const N: usize>(
    paths: [impl AsRef<Path>; N],
    seq_len: u32,
    packing: Chunking,
    reader: Reader,
) -> Result<Dataset, DataError> {
    let paths = paths.map(|path| path.as_ref().to_owned());
    Dataset::of(&Corpus::new(Files::open(&paths, None)?, seq_len, packing, reader)?)
}

fn read(path: impl AsRef<Path>, seq_len: u32) -> Result<Dataset, DataError> {
    dataset([path], seq_len, Chunking::Stream, reader())
}

/// True for an error that says this.
fn fails<T>(result: Result<T, DataError>, part: &str) -> bool {
    result.is_err_and(|error| error.to_string().contains(part))
}

fn corpus(path: &Path) -> Arc<Corpus> {
    let files = Files::open(&[path.to_owned()], None).unwrap();
    let places = Places::new(2, 2, Packing::None);
    Arc::new(Corpus::new(files, 2, Chunking::Stream, reader()).unwrap().filling(places))
}

#[test]
fn bin_files_are_divided_into_whole_chunks_in_order() {
    let scratch = Scratch::new();
    let path = scratch.file("a.bin", ids(&[1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(read(&path, 2).unwrap().chunks, [[1, 2, 3], [4, 5, 6]].map(Chunk::plain));
    // An evaluation scores what is left, too.
    let scored = dataset([&path], 2, Chunking::PerDocument, reader()).unwrap();
    assert_eq!(scored.chunks, [&[1, 2, 3][..], &[4, 5, 6], &[7, 8]].map(Chunk::plain));
    let short = scratch.file("short.bin", ids(&[1, 2]));
    assert!(fails(read(&short, 7), "2 tokens do not fill one chunk of seq_len + 1 = 8"));
    assert_eq!(dataset([short], 7, Chunking::PerDocument, reader()).unwrap().chunks, [Chunk::plain([1, 2])]);
}

#[test]
fn bad_files_are_named() {
    let scratch = Scratch::new();
    let files = [
        ("a.bin", vec![1, 2, 3, 4, 5]),
        ("b.bin", vec![]),
        ("c.bin", ids(&[1, 2, 3, 4, 5, 6, 7, 100])),
        ("d.tsv", b"1\t2".to_vec()),
        ("e.txt", b"text".to_vec()),
    ];
    let messages = files.map(|(name, bytes)| scratch.message(&scratch.file(name, bytes), reader()));
    insta::assert_snapshot!(messages.join("\n"));
    assert!(fails(read("/no/such.bin", 2), "cannot read /no/such.bin: "));
}

#[test]
fn streams_run_on_and_documents_stand_alone() {
    let scratch = Scratch::new();
    let lines = scratch.file("a.jsonl", "{\"text\": \"w1 w2 w3\"}\n{\"text\": \"w4 w5\"}\n");
    let chunks = |packing| dataset([&lines], 2, packing, words()).unwrap().chunks;
    assert_eq!(chunks(Chunking::Stream), [&[1, 2, 3][..], &[99, 4, 5]].map(Chunk::plain));
    assert_eq!(chunks(Chunking::PerDocument), [&[1, 2, 3][..], &[4, 5, 99]].map(Chunk::plain));
}

/// Whatever is tokenized side by side comes in the order of the file, and packing does not see where a group ends.
#[test]
fn thousands_of_lines_are_packed_in_file_order() {
    let scratch = Scratch::new();
    let numbers: Vec<u32> = (0..2999).map(|index| index * 7 % 99).collect();
    let lines: String = numbers.iter().map(|number| format!("{{\"text\": \"w{number}\"}}\n")).collect();
    let path = scratch.file("a.jsonl", lines);
    let chunks = dataset([path], 6, Chunking::Stream, words()).unwrap().chunks;
    let found: Vec<u32> = chunks.iter().flat_map(|chunk| chunk.ids.clone()).collect();
    let expected: Vec<u32> = numbers.iter().flat_map(|number| [*number, 99]).collect();
    assert!(found == expected && chunks[..chunks.len() - 1].iter().all(|chunk| chunk.ids.len() == 7));
}

#[test]
fn a_directory_is_its_files_in_name_order_and_of_one_kind() {
    let scratch = Scratch::new();
    let directory = scratch.0.path().join("data");
    scratch.file("data/b.jsonl", "{\"input_ids\": [3, 4]}\n");
    scratch.file("data/a.jsonl", "{\"input_ids\": [1, 2]}\n");
    scratch.file("data/.hidden", "");
    scratch.file("data/empty.jsonl", "\n");
    let chunks = dataset([&directory], 3, Chunking::Stream, reader()).unwrap().chunks;
    assert_eq!(chunks, [[1, 2], [3, 4]].map(Chunk::plain));
    let message = || scratch.message(&directory, words());
    let note = scratch.file("data/NOTE.md", "w1 w2");
    assert!(message().starts_with("DIR/data: NOTE.md has a document, and a.jsonl has rows of input_ids alone: "));
    std::fs::remove_file(note).unwrap();
    scratch.file("data/README.md", "w1 w2");
    assert_eq!(dataset([&directory], 3, Chunking::Stream, reader()).unwrap().chunks, chunks);
    let table = scratch.file("data/c.tsv", "1");
    assert!(message().starts_with("DIR/data/c.tsv: unknown kind of data"));
    std::fs::remove_file(table).unwrap();
    scratch.file("data/more/d.jsonl", "{}");
    assert!(message().starts_with("DIR/data/more: a directory among data files"));
    let none = scratch.0.path().join("none");
    std::fs::create_dir(&none).unwrap();
    assert!(scratch.message(&none, words()).starts_with("DIR/none: no data in this directory"));
}

#[test]
fn forms_that_are_not_read_are_named_with_the_command_that_converts_them() {
    let scratch = Scratch::new();
    let directory = |name: &str, files: &[&str]| {
        files.iter().for_each(|file| drop(scratch.file(&format!("{name}/{file}"), "{}")));
        scratch.0.path().join(name)
    };
    let paths = [
        directory("saved", &["data-00000-of-00001.arrow", "dataset_info.json", "state.json"]),
        directory("splits", &["dataset_dict.json", "train/state.json"]),
        scratch.file("rows.arrow", ""),
        scratch.file("text.txt.gz", ""),
        scratch.file("rows.jsonl.zst", ""),
    ];
    let said = paths.map(|path| scratch.message(&path, words()).replace(&*scratch.0.path().to_string_lossy(), "DIR"));
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn lines_are_read_compressed_and_damage_is_named() {
    let scratch = Scratch::new();
    let gzip = |text: &str| {
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut to, text.as_bytes()).unwrap();
        to.finish().unwrap()
    };
    let chunks = |path: PathBuf| dataset([path], 7, Chunking::Stream, words()).unwrap().chunks;
    let (first, second) = ("{\"text\": \"w1 w2\"}\n", "{\"text\": \"w3\"}\n");
    let expected = chunks(scratch.file("a.ndjson", [first, second].concat()));
    let members = [gzip(first), gzip(second)].concat();
    for (name, bytes) in [("a.jsonl.gz", members.clone()), ("a.csv", b"text\nw1 w2\nw3\n".to_vec())] {
        assert_eq!(chunks(scratch.file(name, bytes)), expected, "{name}");
    }
    assert_eq!(chunks(scratch.file("b.csv.gz", gzip("text\nw1 w2\nw3\n"))), expected);
    let mut damaged = members.clone();
    damaged[first.len()] ^= 1;
    for (name, bytes) in [("cut.jsonl.gz", &members[..members.len() - 9]), ("damaged.jsonl.gz", &damaged)] {
        let said = scratch.message(&scratch.file(name, bytes), words());
        assert!(
            said.starts_with(&format!("cannot read DIR/{name}: ")) && said.ends_with("gzip -t checks it"),
            "{said}"
        );
    }
}

/// Marks of tokens that do not count, as TRL writes them beside ids.
#[test]
fn tokens_that_a_mask_leaves_out_do_not_count() {
    let scratch = Scratch::new();
    let rows = [
        r#"{"input_ids": [1, 2, 3, 4], "completion_mask": [0, 0, 1, 1]}"#,
        r#"{"input_ids": [1, 2, 3, 4], "completion_mask": null, "assistant_masks": [0, 1, 0, 1]}"#,
        r#"{"input_ids": [0, 1, 2, 3], "attention_mask": [0, 1, 1, 1], "completion_mask": [1, 0, 1, 1], "assistant_masks": [1, 1, 1, 0]}"#,
    ];
    let data = read(scratch.file("rows.jsonl", rows.join("\n")), 7).unwrap();
    let labels = data.chunks.iter().map(|chunk| chunk.labels.clone().unwrap());
    let masked = MASKED_TOKEN;
    let expected = [vec![masked, masked, 3, 4], vec![masked, 2, masked, 4], vec![masked, 2, masked]];
    assert_eq!(labels.collect::<Vec<_>>(), expected);
    assert!(!data.notes.concat().contains("nothing reads"), "{:?}", data.notes);
    let labeled = r#"{"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "completion_mask": [1, 1, 0]}"#;
    let data = read(scratch.file("labeled.jsonl", labeled), 7).unwrap();
    assert_eq!(data.chunks[0].labels, Some(vec![masked, 2, masked]));
    let short = scratch.file("short.jsonl", r#"{"input_ids": [1, 2, 3], "assistant_masks": [1, 1]}"#);
    assert!(fails(
        read(short, 7),
        "3 input_ids and 2 values of assistant_masks: give each token one, 0 where it does not count"
    ));
}

#[test]
fn what_is_wrong_with_a_row_is_said_with_its_line_and_remedy() {
    let scratch = Scratch::new();
    let rows = [
        "{\"text\": \"w1 w2\"}\n\n{\"text\": [1]}\n",
        "{\"prompt\": \"w1\", \"completion\": \"w2\"}\n\n{\"prompt\": \"w1\", \"completion\": [{\"role\": \
        \"user\"}]}\n",
    ];
    let messages = rows.map(|text| scratch.message(&scratch.file("rows.jsonl", text), words()));
    insta::assert_snapshot!(messages.join("\n"));
    let bytes = scratch.file("bytes.jsonl", b"{\"text\": \"w1 w2\"}\n{\"text\": \"\xFF\"}\n");
    assert_eq!(scratch.message(&bytes, words()), "DIR/bytes.jsonl:2: not UTF-8 text: an invalid byte at column 11");
}

#[test]
fn only_a_completion_counts() {
    let scratch = Scratch::new();
    let rows = scratch.file("rows.jsonl", "{\"prompt\": \"w1 w2 \", \"completion\": \"w3 w4\"}\n");
    let data = dataset([rows], 7, Chunking::Stream, words()).unwrap();
    let labels = vec![MASKED_TOKEN, MASKED_TOKEN, 3, 4, 99];
    assert_eq!(data.chunks, [Chunk { ids: vec![1, 2, 3, 4, 99], labels: Some(labels), ..Chunk::default() }]);
    assert_eq!((data.summary.masked, data.summary.tokens), (2, 5));
}

#[test]
fn rows_that_are_truncated_or_skipped_are_counted() {
    let scratch = Scratch::new();
    let rows = [
        r#"{"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]}"#,
        r#"{"input_ids": [1, 2, 3], "labels": [-100, -100, -100]}"#,
        // The first token is predicted by nothing, and the last is truncated.
        r#"{"input_ids": [1, 2, 3, 4], "labels": [1, -100, -100, 4]}"#,
        r#"{"input_ids": [1], "labels": [1]}"#,
        r#"{"input_ids": [], "labels": []}"#,
        r#"{"input_ids": [5, 6], "labels": [5, 6], "id": "a"}"#,
    ];
    let data = read(scratch.file("rows.jsonl", rows.join("\n")), 2).unwrap();
    let expected = [
        Chunk { ids: vec![1, 2, 3], labels: Some(vec![MASKED_TOKEN, MASKED_TOKEN, 3]), ..Chunk::default() },
        Chunk { ids: vec![5, 6], labels: Some(vec![5, 6]), ..Chunk::default() },
    ];
    assert_eq!(data.chunks, expected);
    insta::assert_snapshot!(format!("{:#?}\n{}", data.summary, data.notes[0]));
    let nothing = scratch.file("nothing.jsonl", rows[1]);
    assert!(fails(read(nothing, 2), "no token to predict: a sequence needs at least two"));
}

#[test]
fn a_step_that_is_looked_at_stays_the_next() {
    let scratch = Scratch::new();
    let path = scratch.file("a.bin", ids(&(0..30).collect::<Vec<_>>()));
    let batches = |order| Batches::new(Streams::start(corpus(&path)), order);
    for order in [Order::File, Order::Shuffled { seed: 3, window: 4 }] {
        let (mut looked, mut plain) = (batches(order), batches(order));
        for _ in 0..6 {
            let ahead = looked.peek(2).unwrap();
            let (step, expected) = (looked.step(2).unwrap(), plain.step(2).unwrap());
            assert!(ahead.rows == step.rows && step.rows == expected.rows);
        }
    }
}

/// What a file is told to be empty of does not depend on the files before it.
#[test]
fn of_several_files_the_one_without_a_text_is_named() {
    let scratch = Scratch::new();
    let full = scratch.file("full.jsonl", "{\"text\": \"w1 w2\"}\n");
    let empty = scratch.file("empty.jsonl", "{\"text\": \"\"}\n{\"text\": \"\"}\n");
    let error = dataset([&full, &empty], 7, Chunking::Stream, words());
    assert!(fails(error, "/empty.jsonl: all 2 texts in it are empty"));
    // In a directory others may have some.
    scratch.file("texts/a.jsonl", "{\"text\": \"\"}\n");
    scratch.file("texts/b.jsonl", "{\"text\": \"w1 w2\"}\n");
    let directory = scratch.0.path().join("texts");
    let data = dataset([&directory], 7, Chunking::Stream, words()).unwrap();
    assert_eq!((data.summary.empty, data.summary.rows), (1, 2));
    std::fs::write(directory.join("b.jsonl"), "").unwrap();
    assert!(scratch.message(&directory, words()).starts_with("DIR/texts/a.jsonl: its text is empty"));
}

/// The steps that data too large to be kept give are those of data that are.
#[test]
fn passes_that_are_read_again_are_those_that_were_kept() {
    let scratch = Scratch::new();
    let path = scratch.file("a.bin", ids(&(0..90).collect::<Vec<_>>()));
    let steps = |most_kept: usize, order: Order| -> Vec<Vec<u32>> {
        let corpus = corpus(&path);
        let stream = Streams { portions: vec![Stream::bounded(Arc::clone(&corpus), 0, 7, most_kept)], corpus };
        let mut batches = Batches::new(stream, order);
        (0..40).map(|_| batches.step(1).unwrap().rows.iter().map(|row| row.ids[0] / 3).collect()).collect()
    };
    for order in [Order::File, Order::Shuffled { seed: 3, window: 8 }, Order::Shuffled { seed: 3, window: 10 }] {
        let kept = steps(1000, order);
        assert_eq!(kept, steps(10, order));
        let pass = |number: usize| kept.iter().flatten().skip(30 * number).take(30).copied().collect::<Vec<u32>>();
        let Order::Shuffled { window, .. } = order else {
            assert_eq!((pass(0), pass(1)), ((0..30).collect(), (0..30).collect()));
            continue;
        };
        assert_ne!(pass(0), pass(1));
        for pass in [pass(0), pass(1)] {
            // A chunk stays in its window.
            for (number, chunks) in pass.chunks(window as usize).enumerate() {
                let mut sorted = chunks.to_vec();
                sorted.sort_unstable();
                let first = number as u32 * window;
                assert_eq!(sorted, (first..first + chunks.len() as u32).collect::<Vec<_>>());
            }
        }
    }
}

/// Sources of rows of other lengths, one of them smaller than what is drawn of it.
#[test]
fn sources_are_mixed_by_shares_of_the_tokens() {
    let scratch = Scratch::new();
    let rows = |first: u32, count: u32, length: usize| -> String {
        (first..first + count).map(|id| format!("{{\"input_ids\": {:?}}}\n", vec![id; length])).collect()
    };
    let long = scratch.file("long.jsonl", rows(1, 9, 8));
    let short = scratch.file("short.jsonl", rows(50, 40, 3));
    let source = |path: &PathBuf, share| DataSource { share: Some(share), ..DataSource::whole(path) };
    let draw = |shares: [f64; 2], order| -> Vec<Chunk> {
        let sources = [source(&long, shares[0]), source(&short, shares[1])];
        let files = Files::mixed(&sources, None).unwrap();
        let corpus = Corpus::new(files, 7, Chunking::Stream, reader()).unwrap();
        let corpus = corpus.filling(Places::new(2, 7, Packing::None));
        let mut batches = Batches::new(Streams::start(Arc::new(corpus)), order);
        (0..100).flat_map(|_| batches.step(1).unwrap().rows).map(|row| (*row).clone()).collect()
    };
    for order in [Order::File, Order::Shuffled { seed: 3, window: 8 }] {
        let drawn = draw([0.7, 0.3], order);
        assert_eq!(drawn, draw([7.0, 3.0], order));
        let tokens = |rows: &[Chunk], from: u32| -> usize {
            rows.iter().filter(|row| (row.ids[0] >= 50) == (from == 50)).map(|row| row.ids.len()).sum()
        };
        // After any number of rows no source is further from its share than a row is long.
        for count in 1..=drawn.len() {
            let [long, short] = [1, 50].map(|from| tokens(&drawn[..count], from) as f64);
            assert!((long - 0.7 * (long + short)).abs() <= 8.0, "{count}: {long} {short}");
        }
        // Each source is in its order, pass after pass.
        let of = |from: u32| drawn.iter().map(|row| row.ids[0]).filter(move |id| (*id >= 50) == (from == 50));
        let mut first: Vec<u32> = of(1).take(9).collect();
        first.sort_unstable();
        assert_eq!(first, (1..10).collect::<Vec<_>>());
        if order == Order::File {
            assert!(of(50).eq((50..90).cycle().take(of(50).count())));
        }
    }
}

/// A micro-batch has one teacher, and those of a teacher are the ones that its rows make alone; a teacher whose rows
/// are rare waits for the next pass.
#[test]
fn each_teacher_has_one_open_micro_batch() {
    let scratch = Scratch::new();
    let length = |at: u32| 2 + (at * at + at / 3) % 9;
    let row = |at: u32, name: &str| {
        let ids = vec![at; length(at) as usize];
        format!("{{\"input_ids\": {ids:?}, \"teacher\": \"{name}\"}}\n")
    };
    let names = |at: u32| if at % 7 == 3 { "rare" } else { "other" };
    let all = scratch.file("all.jsonl", (1..60).map(|at| row(at, names(at))).collect::<String>());
    let teachers = ["other", "rare"].map(str::to_owned);
    let micros = |files: Files, count: u32| -> Vec<(u32, Vec<u32>)> {
        let corpus = Corpus::new(files, 9, Chunking::Stream, reader()).unwrap();
        let corpus = corpus.filling(Places::new(2, 9, Packing::Rows));
        let mut batches = Batches::new(Streams::start(Arc::new(corpus)), Order::File);
        let steps = (0..count).map(|_| batches.step(1).unwrap());
        let of_step = |step: Step| {
            let teacher = step.micro_batch(0).teacher as u32;
            assert!(step.rows.iter().all(|row| row.teacher == teacher));
            (teacher, step.rows.iter().map(|row| row.ids[0]).collect())
        };
        steps.map(of_step).collect()
    };
    let files = Files::open(std::slice::from_ref(&all), None).unwrap().taught_by(&teachers).unwrap();
    let mixed = micros(files, 60);
    for (number, name) in (0..).zip(&teachers) {
        let own = (1..60).filter(|at| names(*at) == *name).map(|at| row(at, name)).collect::<String>();
        let own = DataSource {
            teacher: Some(name.clone()),
            ..DataSource::whole(&scratch.file(&format!("{name}.jsonl"), own))
        };
        let of_mixed: Vec<_> = mixed.iter().filter(|(teacher, _)| *teacher == number).collect();
        assert!(of_mixed.len() > 3, "{mixed:?}");
        let files = Files::mixed(&[own], None).unwrap().taught_by(&teachers).unwrap();
        assert!(micros(files, of_mixed.len() as u32).iter().eq(of_mixed));
    }
    assert!(fails(Files::open(&[scratch.file("a.txt", "a b")], None).unwrap().taught_by(&teachers), "has no teacher"));
    let unknown = scratch.file("unknown.jsonl", row(1, "nobody"));
    let files = Files::open(&[unknown], None).unwrap().taught_by(&teachers).unwrap();
    let corpus = Corpus::new(files, 9, Chunking::Stream, reader()).unwrap();
    assert!(fails(corpus.pass_while(&mut |_| true), "unknown.jsonl:1: teacher: no --teacher is called nobody"));
}

#[test]
fn what_is_wrong_is_known_at_the_start_as_far_as_is_read_ahead() {
    let scratch = Scratch::new();
    let row = "{\"input_ids\": [1, 2, 3]}\n";
    let path = scratch.file("rows.jsonl", row.repeat(600) + "{\"input_ids\": [1, 200]}\n");
    let near = Stream::start(corpus(&path), (0, 1));
    assert!(near.read_ahead().unwrap_err().to_string().contains("rows.jsonl:601: "));
    let mut far = Stream::bounded(corpus(&path), 0, 30, 1000);
    assert!(far.read_ahead().unwrap().is_none());
    for _ in 0..600 {
        far.next_chunk().unwrap().unwrap();
    }
    assert!(far.next_chunk().is_err());
}

#[test]
fn a_file_that_changes_while_it_is_read_is_noticed() {
    let scratch = Scratch::new();
    let path = scratch.file("a.bin", ids(&[1, 2, 3]));
    let corpus = corpus(&path);
    std::fs::write(&path, ids(&[1, 2, 3, 4])).unwrap();
    assert!(fails(corpus.digest(), "was changed while the run read it"));
    assert!(fails(corpus.pass_while(&mut |_| true), "was changed while the run read it"));
}

/// A reader of bytes, and of words that merge them, whose tokens stand for their blanks or do not.
fn bytes(trims: bool) -> Reader {
    let text = std::fs::read_to_string("../../tests/fixtures/chat/tokenizer.json").unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["post_processor"] =
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": trims, "use_regex": true});
    let tokenizer = Tokenizer::new(Path::new("bytes"), || json.to_string().parse(), &AddedTokens::default()).unwrap();
    assert_eq!(
        tokenizer.text().unwrap(),
        json.to_string().parse::<tokenizers::Tokenizer>().unwrap().to_string(false).unwrap()
    );
    Reader { tokenizer: Some(Arc::new(tokenizer)), eos: None, vocab: 1000, ..reader() }
}

/// Characters of several tokens at both ends, and blanks that are tokens of their own or begin one.
#[test]
fn all_tokens_of_a_completion_count() {
    let scratch = Scratch::new();
    for trims in [false, true] {
        for (prompt, completion) in
            [("So", " 🎉"), ("🎉", "é"), ("日本", "語"), ("a", " "), ("a:", " b "), ("a", "e\u{301}")]
        {
            let row = serde_json::json!({"prompt": prompt, "completion": completion}).to_string();
            let chunks = dataset([scratch.file("a.jsonl", row)], 63, Chunking::Stream, bytes(trims)).unwrap().chunks;
            let tokenizer = bytes(trims).tokenizer.unwrap();
            let said = chunks[0].labels.as_ref().unwrap().iter().filter(|label| **label != MASKED_TOKEN);
            let [said, all] = [said.copied().collect(), tokenizer.encode(completion, SpecialTokens::Omit).unwrap()];
            assert_eq!(said, all, "{prompt:?} {completion:?} {trims}");
        }
    }
}

#[test]
fn keys_of_turns_that_nothing_reads_are_named() {
    let scratch = Scratch::new();
    let source = ChatSource {
        default: "{% for m in messages %}{{ m.content + m.name | default('') }}{% endfor %}".into(),
        ..ChatSource::default()
    };
    let notes = |row: &str| {
        let reader =
            Reader { chat: Chat::Template(ChatTemplate::new(&source, ChatVariables::default()).unwrap()), ..words() };
        let files = Files::open(&[scratch.file("a.jsonl", row)], None).unwrap();
        Corpus::new(files, 7, Chunking::Stream, reader).unwrap().notes()
    };
    let said = "data: nothing reads these keys of messages: `mask`, `id`";
    let turns = r#""content": "w1", "name": "w2", "weight": 0, "mask": 1, "id": 2, "note": null"#;
    assert_eq!(notes(&format!(r#"{{"messages": [{{"role": "user", {turns}}}]}}"#)), [said]);
    assert_eq!(notes(&format!(r#"{{"prompt": "w1", "completion": [{{"role": "user", {turns}}}]}}"#)), [said]);
    let turns = turns.replace("content", "value");
    assert_eq!(notes(&format!(r#"{{"conversations": [{{"from": "human", {turns}}}]}}"#)), [said]);
    assert_eq!(notes(r#"{"conversations": [{"from": "human", "value": "w1"}]}"#), [""; 0]);
}

#[test]
fn an_end_that_a_tokenizer_adds_counts() {
    let scratch = Scratch::new();
    let rows = |prompt: &str| scratch.file("a.jsonl", format!(r#"{{"prompt": "{prompt}", "completion": "w2"}}"#));
    let plain = words();
    let mut json: serde_json::Value = plain.tokenizer.as_ref().unwrap().text().unwrap().parse().unwrap();
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing", "pair": [],
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "w99", "type_id": 0}}],
        "special_tokens": {"w99": {"id": "w99", "ids": [99], "tokens": ["w99"]}},
    });
    let ends = Tokenizer::new(Path::new("words"), || json.to_string().parse(), &AddedTokens::default()).unwrap();
    for reader in [plain.clone(), Reader { tokenizer: Some(Arc::new(ends)), ..plain }] {
        let chunks = dataset([rows("w99 ")], 7, Chunking::Stream, reader).unwrap().chunks;
        assert_eq!(
            chunks,
            [Chunk { ids: vec![99, 2, 99], labels: Some(vec![MASKED_TOKEN, 2, 99]), ..Chunk::default() }]
        );
    }
}

/// Rows of a pass, and of the passes behind it, fill one micro-batch after the other.
#[test]
fn packed_steps_are_the_rows_of_all_passes_divided() {
    let scratch = Scratch::new();
    let rows: String =
        (0..11u32).map(|id| format!("{{\"input_ids\": {:?}}}\n", vec![id; 2 + id as usize % 7])).collect();
    let files = Files::open(&[scratch.file("a.jsonl", rows)], None).unwrap();
    let places = Places::new(2, 8, Packing::Rows);
    let corpus = Corpus::new(files, 8, Chunking::Stream, reader()).unwrap().filling(places);
    let mut chunks: Vec<Arc<Chunk>> = Vec::new();
    let summary = corpus.pass_while(&mut |chunk| {
        chunks.push(Arc::new(chunk));
        true
    });
    let summary = summary.unwrap();
    let passes: Vec<Arc<Chunk>> = chunks.iter().cycle().take(44).cloned().collect();
    let expected = Step::new(passes, places);
    let mut batches = Batches::new(Streams::start(Arc::new(corpus)), Order::File);
    for number in 0..5 {
        let (ahead, step) = (batches.peek(2).unwrap(), batches.step(2).unwrap());
        assert!(
            ahead.rows == step.rows && step.rows == expected.rows_of(number * 2..number * 2 + 2) && step.micros() == 2,
            "{number}"
        );
    }
    // Whole micro-batches, and of the last one what it has.
    let whole = places.divide(chunks.iter().map(|chunk| &**chunk));
    let last: usize = chunks[whole.last().unwrap().clone()].iter().map(|chunk| chunk.targets().len()).sum();
    assert_eq!(summary.places as usize, (whole.len() - 1) * places.count() + last);
    assert_eq!(summary.fill(), Some((summary.tokens - 11) as f64 / summary.places as f64));
}

#[test]
fn a_document_may_be_a_row_in_pieces() {
    let scratch = Scratch::new();
    let path = scratch.file("a.jsonl", "{\"text\": \"w1 w2 w3 w4\"}\n{\"text\": \"w5\"}\n");
    let files = Files::open(&[path], None).unwrap();
    let corpus = Corpus::new(files, 2, Chunking::PerDocument, words()).unwrap();
    let corpus = corpus.filling(Places::new(1, 2, Packing::Documents));
    assert_eq!(corpus.chunking_rules(), "documents 1");
    let data = Dataset::of(&corpus).unwrap();
    assert_eq!(data.chunks, [&[1, 2, 3][..], &[4, 99], &[5, 99]].map(Chunk::plain));
    let divided = "data: 1 of 2 documents are longer than seq_len + 1 = 3: divided into pieces; 20 % of the places";
    assert!(data.notes[0].starts_with(divided), "{:?}", data.notes);
    // So few places have one row at most.
    assert_eq!(data.summary.fill(), Some(0.8));
}

#[test]
fn places_that_more_rows_could_take_are_noted() {
    let scratch = Scratch::new();
    let path = scratch.file("a.jsonl", "{\"input_ids\": [1, 2, 3]}\n".repeat(9));
    let summary = |batch| {
        let files = Files::open(std::slice::from_ref(&path), None).unwrap();
        let corpus = Corpus::new(files, 16, Chunking::Stream, words()).unwrap();
        Dataset::of(&corpus.filling(Places::new(batch, 16, Packing::Rows))).unwrap().summary
    };
    // Four rows of two places each, twice, and one more.
    let few = summary(4);
    assert_eq!((few.places, few.beyond_rows), (2 * 64 + 2, 2 * 56));
    let note = few.note(17).unwrap();
    assert!(note.starts_with("data: 86 % of the places stay empty: a micro-batch takes as many rows as"), "{note}");
    // What a longer row leaves is no place of another.
    let path = scratch.file("b.jsonl", "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]}\n".repeat(9));
    let corpus = Corpus::new(Files::open(&[path], None).unwrap(), 16, Chunking::Stream, words()).unwrap();
    let data = Dataset::of(&corpus.filling(Places::new(1, 16, Packing::Rows))).unwrap();
    assert_eq!((data.summary.beyond_rows, data.notes.len()), (0, 0));
}

#[test]
fn a_packing_is_of_what_files_hold() {
    let scratch = Scratch::new();
    let [rows, text] = [("a.jsonl", "{\"input_ids\": [1, 2]}"), ("b.jsonl", "{\"text\": \"w1 w2\"}")]
        .map(|(name, line)| scratch.file(name, line));
    let ids = scratch.file("c.bin", ids(&[1, 2, 3]));
    let packing = |paths: &[&PathBuf], asked| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).clone()).collect();
        let said = Files::open(&paths, None).unwrap().packing(asked);
        said.map_err(|reason| reason.replace(&scratch.0.path().display().to_string(), "DIR"))
    };
    assert_eq!(packing(&[&rows], None), Ok(Packing::DEFAULT_OF_ROWS));
    assert_eq!(packing(&[&text, &ids, &rows], None), Ok(Packing::DEFAULT_OF_ROWS));
    assert_eq!((packing(&[&text], None), packing(&[&ids], None)), (Ok(Packing::None), Ok(Packing::None)));
    assert_eq!(packing(&[&text, &rows], Some(Packing::Documents)), Ok(Packing::Documents));
    assert_eq!(packing(&[&text, &rows], Some(Packing::Rows)), Ok(Packing::Rows));
    let said = [(&text, Packing::Rows), (&ids, Packing::Rows), (&ids, Packing::Documents)];
    let said = said.map(|(path, asked)| packing(&[path], Some(asked)).unwrap_err());
    insta::assert_snapshot!(said.join("\n"));
}
