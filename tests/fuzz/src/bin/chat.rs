//! A chat template and a row: the template, a conversation, a prompt before it and tools. Rendered in this process,
//! with fuel; a row that takes more memory than there is ends the process, as it ends the one that renders for a run.
#![no_main]

use minijinja::Value;
use precast_fuzz::{fixture, fixtures, joined, parts};
use precast_inputs::chat::{ChatSource, ChatVariables, Templates, date};

precast_fuzz::target!(seeds, |input: &[u8]| {
    precast_fuzz::end_quietly();
    // With the stack of the process that renders.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 20);
        let rendered = thread.spawn_scoped(scope, || render(input)).expect("a thread starts").join();
        rendered.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
});

fn render(input: &[u8]) {
    let [template, messages, before, tools] = parts::<4>(input).map(String::from_utf8_lossy);
    let constants = vec![("bos_token".to_owned(), "<s>".to_owned()), ("eos_token".to_owned(), "</s>".to_owned())];
    let source = ChatSource { default: template.into_owned(), tool_use: None, constants };
    let variables = ChatVariables { date: date("2026-01-31").ok(), enable_thinking: Some(true) };
    let Ok(templates) = Templates::new(&source, variables) else { return };
    let Ok(messages) = serde_json::from_str::<Value>(&messages) else { return };
    let [before, tools] = [before, tools].map(|text| serde_json::from_str::<Value>(&text).ok());
    let _ = templates.prompt(&messages, tools.as_ref());
    let Ok(conversation) = templates.conversation(before.as_ref(), &messages, tools.as_ref()) else { return };
    for span in conversation.spans {
        assert!(conversation.text.get(span).is_some(), "a span is no text");
    }
}

/// Returns each template with a conversation, and one of them with each conversation.
fn seeds() -> Vec<Vec<u8>> {
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).expect("JSON");
    let conversations = json(&fixture("tests/fixtures/chat/conversations.json"));
    let rows: Vec<[String; 2]> = conversations
        .as_object()
        .expect("conversations by name")
        .values()
        .map(|row| [row["messages"].to_string(), row["tools"].to_string()])
        .collect();
    let templates = fixtures("tests/fixtures/chat", ".json").into_iter().map(|file| json(&file)["template"].clone());
    let templates: Vec<String> = templates.filter_map(|template| Some(template.as_str()?.to_owned())).collect();
    let seed = |template: &str, [messages, tools]: &[String; 2]| {
        joined(&[template.as_bytes(), messages.as_bytes(), b"null", tools.as_bytes()])
    };
    let each = templates.iter().enumerate().map(|(index, template)| seed(template, &rows[index % rows.len()]));
    each.chain(rows.iter().map(|row| seed(&templates[0], row))).collect()
}
