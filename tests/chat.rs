//! Conversations under real chat templates: text, token ids and what counts, as transformers has them.
//! `tests/chat/make.py` says where the templates come from.

use std::collections::BTreeMap;
use std::sync::Arc;

use precast::inputs::added_tokens::AddedTokens;
use precast::inputs::chat::{Chat, ChatSource, ChatTemplate, ChatVariables};
use precast::inputs::data::{Chunking, Corpus, Dataset, Files, Reader};
use precast::inputs::tokenizer::Tokenizer;
use precast_kernels::abi::MASKED_TOKEN;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::support::prelude::*;

#[derive(Deserialize)]
struct Conversation {
    messages: Box<RawValue>,
    tools: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Fixture {
    template: String,
    /// A prompt by the value of `enable_thinking`.
    prompts: BTreeMap<String, String>,
    cases: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    text: Option<String>,
    ids: Option<Vec<u32>>,
    /// Which tokens count; none where rendering adds to no rendering before.
    counts: Option<Vec<u32>>,
    raises: Option<String>,
}

/// The process that a template is rendered by, which [`ChatTemplate`] starts of this program.
#[test]
fn render_chats() {
    precast::inputs::chat::serve().unwrap();
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Whether a case is as transformers has it, or what is not.
fn compare(
    template: &Arc<ChatTemplate>,
    tokenizer: &Arc<Tokenizer>,
    row: &Path,
    expected: &Expected,
) -> Result<(), String> {
    let reader = Reader {
        tokenizer: Some(Arc::clone(tokenizer)),
        chat: Chat::Template(Arc::clone(template)),
        eos: None,
        vocab: 1000,
    };
    let corpus =
        Files::open(&[row.to_owned()], None).and_then(|files| Corpus::new(files, 4096, Chunking::Stream, reader));
    let read = corpus.and_then(|corpus| Dataset::of(&corpus)).map_err(|error| error.to_string());
    let chunk = match (&read, &expected.raises, &expected.counts) {
        (Err(error), Some(raises), _) if error.contains("the chat template refuses the row: ") => {
            // What Jinja says otherwise.
            let is_jinjas = ["concatenate", "has no attribute", "Undefined"].iter().any(|words| raises.contains(words));
            let is_same = is_jinjas || error.contains(raises.as_str());
            return if is_same { Ok(()) } else { Err(format!("{error}, not {raises}")) };
        }
        (Err(error), None, None) if error.contains("the assistant's part cannot be told") => return Ok(()),
        (Err(error), None, Some(counts))
            if error.contains("no token to predict") && counts.iter().all(|one| *one == 0) =>
        {
            return Ok(());
        }
        (Ok(data), None, Some(_)) => &data.chunks[0],
        (read, raises, counts) => {
            return Err(format!("{:?} with raises {raises:?}, counts {counts:?}", read.as_ref().err()));
        }
    };
    let ids = expected.ids.as_deref().unwrap_or_default();
    if chunk.ids != ids {
        let text = tokenizer.decode(&chunk.ids).unwrap_or_default();
        return Err(format!("other ids:\n{text}\nin place of\n{}", expected.text.as_deref().unwrap_or_default()));
    }
    let counts: Vec<u32> = chunk.labels.iter().flatten().map(|label| u32::from(*label != MASKED_TOKEN)).collect();
    if Some(&counts) == expected.counts.as_ref() {
        Ok(())
    } else {
        Err(format!("{counts:?} count, not {:?}", expected.counts))
    }
}

/// A template as a model has it whose tokens are those of the fixtures.
fn parse(default: String, enable_thinking: Option<bool>) -> Arc<ChatTemplate> {
    let constants = [("bos_token", "<|begin_of_text|>"), ("eos_token", "<|im_end|>")];
    let constants = constants.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
    let source = ChatSource { default, tool_use: None, constants };
    ChatTemplate::new(&source, ChatVariables { date: None, enable_thinking }).unwrap()
}

#[test]
fn a_prompt_thinks_or_does_not_as_in_transformers() {
    let folder = fixture("chat");
    let conversations: BTreeMap<String, Conversation> = read(&folder.join("conversations.json"));
    let messages = conversations["a user who says nothing more"].messages.get();
    let messages = serde_json::from_str(messages).unwrap();
    let mut differing = Vec::new();
    for name in
        names_in(&folder).into_iter().filter(|name| !["conversations.json", "tokenizer.json"].contains(&&**name))
    {
        let Fixture { template, prompts, .. } = read(&folder.join(&name));
        for (value, expected) in &prompts {
            let template = parse(template.clone(), value.parse().ok());
            assert_eq!(template.prompt(&messages, None).as_ref(), Ok(expected), "{name}: enable_thinking {value}");
        }
        assert_eq!(prompts.len(), 3, "undefined, true and false");
        if prompts["true"] != prompts["false"] {
            differing.push(name);
        }
    }
    let expected = ["glm4moe", "nemotron_3_nano", "qwen3", "qwen3_6", "qwen3_npm", "qwen3_training"];
    assert_eq!(differing, expected.map(|name| format!("{name}.json")));
}

#[test]
fn conversations_are_rendered_and_masked_as_in_transformers() {
    let folder = fixture("chat");
    let conversations: BTreeMap<String, Conversation> = read(&folder.join("conversations.json"));
    // Ids and masks are the same where tokens do not stand for their blanks.
    let trimming = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let tokenizers = [Value::Null, trimming].map(|processor| {
        let mut json: Value = read(&folder.join("tokenizer.json"));
        json["post_processor"] = processor;
        Arc::new(Tokenizer::new(&folder, || json.to_string().parse(), &AddedTokens::default()).unwrap())
    });
    let dir = tempfile::tempdir().unwrap();
    let (mut compared, mut wrong) = (0, Vec::new());
    for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if ["conversations", "tokenizer"].contains(&&*name) {
            continue;
        }
        let Fixture { template, cases, .. } = read(&path);
        let template = parse(template, None);
        assert_eq!(cases.len(), conversations.len());
        for (title, expected) in &cases {
            let Conversation { messages, tools } = &conversations[title];
            let row = dir.path().join("row.jsonl");
            let tools = tools
                .as_ref()
                .map(|tools| format!(", \"tools\": {}", tools.get().replace('\n', " ")))
                .unwrap_or_default();
            let line = format!("{{\"messages\": {}{tools}}}", messages.get().replace('\n', " "));
            fs::write(&row, line).unwrap();
            for tokenizer in &tokenizers {
                match compare(&template, tokenizer, &row, expected) {
                    Ok(()) => compared += 1,
                    Err(what) => wrong.push(format!("{name}, {title}: {what}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(compared >= 2 * 20 * 10, "{compared}");
}
