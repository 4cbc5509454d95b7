use std::sync::Arc;

use minijinja::Value;

use super::templates::no_prefix;
use super::*;
use crate::added_tokens::AddedTokens;
use crate::tokenizer::Tokenizer;

const CHATML: &str = "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '\n' }}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}";

fn template(text: &str) -> Arc<ChatTemplate> {
    let constants = vec![("bos_token".to_owned(), "^".to_owned())];
    let source = ChatSource { default: text.to_owned(), tool_use: None, constants };
    ChatTemplate::new(&source, ChatVariables::default()).unwrap()
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

/// Why a conversation is refused.
fn refused(template: &Arc<ChatTemplate>, json: &str) -> String {
    template.conversation(None, &value(json), None).unwrap_err()
}

/// Returns the parts of a completion that count.
fn completed(template: &Arc<ChatTemplate>, prompt: &str, completion: &str) -> Result<Vec<String>, String> {
    let Conversation { text, spans } = template.conversation(Some(&value(prompt)), &value(completion), None)?;
    Ok(spans.into_iter().map(|span| text[span].to_owned()).collect())
}

const TURNS: &str = r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "é"},
                        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]"#;

#[test]
fn a_text_that_has_marks_of_its_own_is_refused() {
    let marked = template("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}");
    let message = refused(&marked, r#"[{"role": "assistant", "content": "﷐"}]"#);
    assert!(message.contains("which are no characters"), "{message}");
}

#[test]
fn only_completions_count() {
    let prompt = r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]"#;
    let said = completed(&template(CHATML), prompt, r#"[{"role": "assistant", "content": "d"}]"#);
    assert_eq!(said.unwrap(), ["d\n"]);
}

/// Marks are in all of it, and what is before the completion does not count.
#[test]
fn of_marks_those_of_the_completion_count() {
    let marked = "{% for m in messages %}<{{ m.role }}>{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}\
                  {% if add_generation_prompt %}<assistant>{% endif %}";
    let prompt = r#"[{"role": "user", "content": "a"}]"#;
    let completion = r#"[{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]"#;
    assert_eq!(completed(&template(marked), prompt, completion).unwrap(), ["b", "c"]);
    // Whatever the template renders before; and not what the prompt ends with, which marks may enclose.
    let changes = marked.replace("<{{ m.role }}>", "<{{ messages|length }}>");
    assert_eq!(completed(&template(&changes), prompt, completion).unwrap(), ["b", "c"]);
    let with_header = marked.replace("<{{ m.role }}>{% generation %}", "{% generation %}<{{ m.role }}>");
    assert_eq!(completed(&template(&with_header), prompt, completion).unwrap(), ["b", "<user>c"]);
}

/// With marks and without, also where rendering differs before a turn that counts.
#[test]
fn turns_that_say_that_they_do_not_count_do_not() {
    let marked =
        CHATML.replace("m.content + '\n' }}", "'' }}{% generation %}{{ m.content }}{% endgeneration %}{{ '\n' }}");
    let marked =
        marked.replace("{% generation %}", "{% generation %}{% if m.role == 'user' %}{% set x = 1 %}{% endif %}");
    let said = |template: &str, first: &str, second: &str| {
        let turns = TURNS.replace(r#""content": "é""#, &format!(r#""content": "é"{first}"#));
        let turns = turns.replace(r#""content": "d""#, &format!(r#""content": "d"{second}"#));
        let Conversation { text, spans } = self::template(template).conversation(None, &value(&turns), None)?;
        Ok::<_, String>(spans.into_iter().map(|span| text[span].trim().to_owned()).collect::<Vec<_>>())
    };
    for no in [r#", "weight": 0"#, r#", "train": false"#, r#", "loss": 0.0"#] {
        for yes in ["", r#", "weight": 1"#, r#", "train": true, "loss": null"#] {
            assert_eq!(said(CHATML, no, yes).unwrap(), ["d"], "{no} {yes}");
            assert_eq!(said(&marked, yes, no).unwrap(), ["a", "é", "c"], "{no} {yes}");
        }
    }
    let unlike = CHATML.replace("'<' + m.role", "(messages | length | string) + m.role");
    assert_eq!(said(&unlike, r#", "train": false"#, ""), Err(no_prefix(3, 4)));
    let half = said(CHATML, r#", "weight": 0.5"#, "").unwrap_err();
    assert_eq!(half, "messages[1]: weight is 0.5: a turn counts or does not: expected 0, 1, true or false");
}

/// As transformers has it since 5.24: of a null many templates learn the word.
#[test]
fn keys_that_are_null_are_not_there() {
    let words = "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.tool_calls }}{{ m | tojson }}{% endfor %}";
    let message = r#"[{"role": "user", "content": null, "tool_calls": null, "name": "x"}]"#;
    assert_eq!(template(words).prompt(&value(message), None).unwrap(), r#"user{"role": "user", "name": "x"}"#);
}

/// DeepSeek-R1-Distill's and QwQ's, in short: a prompt begins the reasoning, and messages drop it.
const REASONS: [&str; 2] = [
    "{% for m in messages %}{{ ('Q:' if m.role == 'user' else 'A:') + m.content.split('</think>')[-1] + ';' }}{% \
    endfor %}\
     {% if add_generation_prompt %}{{ 'A:<think>\n' }}{% endif %}",
    "{% for m in messages %}{{ m.role + '\n' + m.content.split('</think>')[-1].lstrip('\n') + ';\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ 'assistant\n<think>\n' }}{% endif %}",
];

#[test]
fn of_a_template_that_drops_reasoning_one_turn_is_learnt_whole() {
    let turn = r#"[{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nt\n</think>\n\na"}]"#;
    let more = turn.replace(']', ",") + &turn[1..];
    let [distill, qwq] = REASONS.map(template);
    let said = |template: &Arc<ChatTemplate>, turn: &str| {
        template
            .conversation(None, &value(turn), None)
            .map(|it| [it.text[..it.spans[0].start].to_owned(), it.text[it.spans[0].clone()].to_owned()])
    };
    assert_eq!(said(&distill, turn).unwrap(), ["Q:q;", "A:<think>\nt\n</think>\n\na;"]);
    assert_eq!(said(&qwq, turn).unwrap(), ["user\nq;\nassistant\n", "<think>\nt\n</think>\n\na;\n"]);
    let plain = turn.replace("<think>\\nt\\n</think>\\n\\n", "");
    assert_eq!(said(&distill, &plain).unwrap(), ["Q:q;", "A:a;"]);
    assert_eq!(said(&distill, &more), Err(no_prefix(1, 4)));
    // What the message advises: the turns before are rendered as a prompt has them.
    let (prompt, completion) = more.split_at(more.rfind(r#"{"role""#).unwrap());
    let (prompt, completion) = (format!("{}]", prompt.trim_end_matches(", ")), format!("[{completion}"));
    let whole = distill.conversation(Some(&value(&prompt)), &value(&completion), None).unwrap();
    assert_eq!((&whole.text[..16], whole.spans.len()), ("Q:q;A:\n\na;Q:q;A:", 1));
    // Text with the character that stands for the end of the reasoning meanwhile.
    assert!(said(&distill, &turn.replace("\"q\"", "\"\u{FDD2}\"")).is_err());
}

#[test]
fn a_template_says_which_keys_it_reads() {
    let template = template("{% for m in messages %}{{ m.role }}{{ m['tool_plan'] }}{{ m.thinking }}{% endfor %}");
    let keys = ["role", "tool_plan", "thinking", "reasoning", "weight", "plan", "tool", "content"];
    assert_eq!(keys.map(|key| template.reads(key)), [true, true, true, true, true, false, false, false]);
}

#[test]
fn the_token_that_ends_a_turn_is_known() {
    let json = std::fs::read_to_string("../../tests/fixtures/chat/tokenizer.json").unwrap();
    let tokenizer = Tokenizer::parse(std::path::Path::new("t"), json.as_bytes(), &AddedTokens::default()).unwrap();
    let [end, text] = ["<|im_end|>", "<|endoftext|>"].map(|token| tokenizer.id(token).unwrap());
    let chatml = CHATML.replace("'\n' }}", "'<|im_end|>\n' }}");
    let known = |template: &str| TurnEnd::of(&self::template(template), &tokenizer);
    let notes = |template: &str, stops: &[u32]| {
        let end = known(template).unwrap();
        end.note_of_stops(stops, &tokenizer, None).into_iter().chain(end.note_of_learning()).collect::<Vec<_>>()
    };
    let marked = CHATML
        .replace("m.content + '\n' }}", "'' }}{% generation %}{{ m.content }}{% endgeneration %}{{ '<|im_end|>' }}");
    assert_eq!(notes(&chatml, &[text, end]), [""; 0]);
    insta::assert_snapshot!(format!("{}\n{}", notes(&chatml, &[text]).join("\n"), notes(&marked, &[]).join("\n")));
    assert!(known(CHATML).is_none());
}

#[test]
fn conversations_with_tools_go_through_the_template_for_them() {
    let source = ChatSource {
        default: CHATML.into(),
        tool_use: Some(format!("{{% for t in tools %}}{{{{ t.name }}}};{{% endfor %}}{CHATML}")),
        constants: vec![],
    };
    let template = ChatTemplate::new(&source, ChatVariables::default()).unwrap();
    let turns = value(TURNS);
    let text = |tools: Option<&str>| template.conversation(None, &turns, tools.map(value).as_ref()).unwrap().text;
    assert!(text(None).starts_with("<user>a"));
    let list = r#"[{"name": "f"}, {"name": "g"}]"#;
    assert!(text(Some(list)).starts_with("f;g;<user>a"));
    // As datasets keep them, whose columns have one type.
    assert_eq!(text(Some(&serde_json::to_string(list).unwrap())), text(Some(list)));
}

#[test]
fn what_is_no_conversation_is_refused() {
    let messages = [
        refused(&template(CHATML), "[]"),
        refused(&template(CHATML), "[1]"),
        refused(&template(CHATML), r#"[{"role": 1, "content": "a"}]"#),
        refused(&template(CHATML), r#"[{"role": "user", "content": "a"}, {"role": "assistant"}]"#),
        template("").conversation(None, &value(TURNS), Some(&value(r#""{""#))).unwrap_err(),
        template("").conversation(None, &value(TURNS), Some(&value(r#"[{}, "{}"]"#))).unwrap_err(),
    ];
    insta::assert_snapshot!(messages.join("\n"));
    let broken = ChatSource { default: "{% if %}".into(), ..ChatSource::default() };
    assert!(ChatTemplate::new(&broken, ChatVariables::default()).is_err());
}

#[test]
fn a_day_is_said_where_one_is_given() {
    let source = ChatSource { default: "{{ strftime_now('%d %b %Y') }}".into(), ..ChatSource::default() };
    let dated =
        ChatTemplate::new(&source, ChatVariables { date: date("2024-07-06").ok(), enable_thinking: None }).unwrap();
    assert_eq!(dated.prompt(&value(TURNS), None).unwrap(), "06 Jul 2024");
    assert!(date("2024-02-30").is_err() && date("today").is_err());
}

#[test]
fn files_beside_a_model_hold_its_template() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let read = || ChatSource::of_directory(dir.path()).unwrap();
    assert_eq!(read(), None);
    write("tokenizer_config.json", r#"{"bos_token": null, "eos_token": {"content": "</s>"}, "chat_template": "a"}"#);
    write("special_tokens_map.json", r#"{"pad_token": "<pad>"}"#);
    let constants =
        [("eos_token", "</s>"), ("pad_token", "<pad>")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    let of = |default: &str| ChatSource { default: default.into(), tool_use: None, constants: constants.to_vec() };
    assert_eq!(read(), Some(of("a")));
    write("chat_template.jinja", "b");
    assert_eq!(read(), Some(of("b")));
    std::fs::create_dir(dir.path().join("additional_chat_templates")).unwrap();
    write(TOOL_USE, "t");
    assert_eq!(read(), Some(ChatSource { tool_use: Some("t".into()), ..of("b") }));
    // As transformers has it: the latter counts where the former is of before there was `added_tokens_decoder`.
    write("special_tokens_map.json", r#"{"eos_token": "<e>"}"#);
    let eos = || token(&tokenizer_config(dir.path()).unwrap(), "eos_token").unwrap();
    assert_eq!(eos(), "<e>");
    write("tokenizer_config.json", r#"{"eos_token": "</s>", "added_tokens_decoder": {}}"#);
    assert_eq!(eos(), "</s>");
    let list = serde_json::json!({ "chat_template": [
        { "name": "default", "template": "c" }, { "name": "tool_use", "template": "d" },
    ] });
    assert_eq!(
        ChatSource::of_config(&list),
        Some(ChatSource { default: "c".into(), tool_use: Some("d".into()), constants: vec![] })
    );
}

/// The process that [`ChatTemplate`] starts of this program; by itself it has nothing to answer.
#[test]
fn render_chats() {
    serve().unwrap();
}

/// Returns the refusal of a template, or of a row under it.
fn refused_or_rendered(text: &str) -> String {
    let source = ChatSource { default: text.to_owned(), ..ChatSource::default() };
    let rendered = ChatTemplate::new(&source, ChatVariables::default())
        .and_then(|template| template.prompt(&value(r#"[{"role": "user", "content": "abc"}]"#), None));
    rendered.unwrap_or_else(|error| error)
}

#[test]
fn a_template_of_any_depth_is_parsed_or_refused() {
    for count in [8000, 400_000] {
        for text in [
            format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(count)),
            format!("{{{{ {}1 }}}}", "1 ~ ".repeat(count)),
            format!("{}{}", "{% for a in b %}".repeat(count), "{% endfor %}".repeat(count)),
        ] {
            let said = refused_or_rendered(&text);
            let ends = ["", "or nests too deeply", "more than 1 s", "exceeded recursion limit (chat_template:1)"];
            assert!(said.chars().all(|digit| digit == '1') || ends.iter().any(|end| said.ends_with(end)), "{said}");
        }
    }
}

/// Each step of these takes time that grows with what the template has made.
#[test]
fn a_template_that_does_not_end_is_refused() {
    for text in [
        "{% set l = range(99999) | list %}{% for i in l %}{{ -1 in l }}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    ] {
        assert_eq!(refused_or_rendered(text), "the chat template refuses the row: it takes more than 1 s");
    }
    // Meanwhile others are rendered, and after it, too.
    assert_eq!(template("{{ messages[0].content }}").prompt(&value(TURNS), None).unwrap(), "a");
}

#[test]
fn a_template_that_takes_all_memory_is_refused() {
    let doubled = |set: &str| format!("{{% set n = namespace(x='ab') %}}{{% for i in range(40) %}}{set}{{% endfor %}}");
    let forms = [
        doubled("{% set n.x = n.x ~ n.x %}"),
        doubled("{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}"),
        "{{ 'a' | indent(10000000000, true) }}".to_owned(),
        "{{ ([1] * 99999999) | list }}".to_owned(),
        format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "a".repeat(9999)),
    ];
    for form in &forms {
        let said = refused_or_rendered(form);
        let shown = &form[..form.len().min(120)];
        assert!(said.ends_with("it takes more than 32 MiB of memory, or nests too deeply"), "{said}: {shown}");
    }
}

#[test]
fn lists_and_macros_within_each_other_are_rendered_or_refused() {
    let nested = |levels: u32, then: &str| {
        let grow = format!("{{% for i in range({levels}) %}}{{% set n.x = [n.x] %}}{{% endfor %}}{then}");
        refused_or_rendered(&format!("{{% set n = namespace(x=[]) %}}{grow}"))
    };
    assert_eq!(nested(4999, "done"), "done");
    assert!(nested(99_999, "{{ n.x | tojson }}").ends_with("nests too deeply"));
    let calls = "{% macro a(b) %}{% for c in [1] %}{{ a(b) }}{% endfor %}{% endmacro %}{{ a(1) }}";
    assert!(refused_or_rendered(calls).contains("recursion limit exceeded"), "{}", refused_or_rendered(calls));
    let indent = "\n{{ messages | tojson(indent=1000000000) }}";
    assert!(refused_or_rendered(indent).contains("at most 64 (chat_template:2)"), "{}", refused_or_rendered(indent));
}

#[test]
fn a_process_that_is_killed_is_named_and_replaced() {
    let template = template("{{ messages[0].content }}");
    let mut idle = template.idle();
    let process = idle[0].process.id();
    idle[0].process.kill().unwrap();
    drop(idle);
    let said = template.prompt(&value(TURNS), None).unwrap_err();
    assert!(said.ends_with("was ended by signal 9"), "{said}");
    assert_eq!(template.prompt(&value(TURNS), None).unwrap(), "a");
    assert_ne!(template.idle()[0].process.id(), process);
}

/// JSON has no word for it: it would become null.
#[test]
fn a_number_that_is_not_finite_is_refused() {
    let tools = Value::from(vec![Value::from_pairs([("default", f64::NAN)])]);
    let said = template("{{ tools }}").prompt(&value(TURNS), Some(&tools)).unwrap_err();
    assert!(said.ends_with("a number in it is not finite"), "{said}");
}
