use minijinja::Value;

use super::*;
use crate::inputs::added_tokens::AddedTokens;
use crate::inputs::tokenizer::Tokenizer;

const CHATML: &str = "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '\n' }}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}";

fn template(text: &str) -> Arc<ChatTemplate> {
    let constants = vec![("bos_token".to_owned(), "^".to_owned())];
    ChatTemplate::new(&ChatSource { default: text.to_owned(), tool_use: None, constants }, None).unwrap()
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
    // Whatever the template renders before, and where a prompt ends with what the marks enclose.
    let changes = marked.replace("<{{ m.role }}>", "<{{ messages|length }}>");
    assert_eq!(completed(&template(&changes), prompt, completion).unwrap(), ["b", "c"]);
    let with_header = marked.replace("<{{ m.role }}>{% generation %}", "{% generation %}<{{ m.role }}>");
    assert_eq!(completed(&template(&with_header), prompt, completion).unwrap(), ["<assistant>b", "<user>c"]);
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
    "{% for m in messages %}{{ ('Q:' if m.role == 'user' else 'A:') + m.content.split('</think>')[-1] + ';' }}{% endfor %}\
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
    let json = std::fs::read_to_string("tests/fixtures/chat/tokenizer.json").unwrap();
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
    let template = ChatTemplate::new(&source, None).unwrap();
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
    ];
    insta::assert_snapshot!(messages.join("\n"));
    assert!(ChatTemplate::new(&ChatSource { default: "{% if %}".into(), ..ChatSource::default() }, None).is_err());
}

#[test]
fn a_day_is_said_where_one_is_given() {
    let source = ChatSource { default: "{{ strftime_now('%d %b %Y') }}".into(), ..ChatSource::default() };
    let dated = ChatTemplate::new(&source, Some(date("2024-07-06").unwrap())).unwrap();
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

#[test]
fn a_template_of_any_depth_overflows_no_stack() {
    let parse = |text: String| ChatTemplate::new(&ChatSource { default: text, ..ChatSource::default() }, None).err();
    for count in [2000, 8000, 200_000] {
        for text in [
            format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(count)),
            format!("{{{{ {}1 }}}}", "1 ~ ".repeat(count)),
            format!("{{{{ {}a }}}}", "not ".repeat(count)),
            format!("{{{{ a{} }}}}", ".b".repeat(count)),
            format!("{}{}", "{% for a in b %}".repeat(count), "{% endfor %}".repeat(count)),
        ] {
            let is_long = text.len() > 128 << 10;
            let error = parse(text).unwrap_or_default();
            assert_eq!(error.ends_with("at most 131072 are read"), is_long, "{error}");
        }
    }
}

#[test]
fn a_row_that_takes_a_template_forever_is_refused() {
    let refused = |text: &str| {
        let message = value(r#"[{"role": "user", "content": "abc"}]"#);
        template(text).prompt(&message, None).unwrap_err()
    };
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}\n{% endfor %}{% endfor %}";
    assert!(refused(loops).contains("it takes more than 1000000 instructions (chat_template:1)"), "{}", refused(loops));
    // A thread of rayon has 2 MiB.
    let calls = "{% macro a(b) %}{% for c in [1] %}{{ a(b) }}{% endfor %}{% endmacro %}{{ a(1) }}";
    assert!(refused(calls).contains("recursion limit exceeded"), "{}", refused(calls));
    let indent = "\n{{ messages | tojson(indent=1000000000) }}";
    assert!(refused(indent).contains("at most 64 (chat_template:2)"), "{}", refused(indent));
}

/// Each doubles what it has, or asks for all at once, in fewer instructions than a message takes.
#[test]
fn a_row_whose_template_asks_for_all_memory_is_refused() {
    let doubled = |set: &str, then: &str| {
        format!("{{% set n = namespace(x='ab', l=[1], c=0) %}}{{% for i in range(40) %}}{set}{{% endfor %}}{then}")
    };
    let text = "{% set x = 'a' * 99999999 %}";
    let small = "{% set x = 'a' * 9999 %}{% set n = namespace(x=[]) %}";
    let forms = [
        doubled("{% set n.x = n.x ~ n.x %}", ""),
        doubled("{% set n.x = n.x + n.x %}", ""),
        doubled("{% set n.x = n.x * 9 %}", ""),
        doubled("{% set n.l = n.l + n.l %}", "{{ n.l | list | length }}"),
        doubled("{% set n.l = (n.l * 9) | list %}", ""),
        doubled("{% set n.l = [n.l, n.l] %}", "{{ n.l }}"),
        doubled("{% set n.l = [n.l, n.l] %}", "{{ n.l | tojson }}"),
        doubled("{% set n.x = n.x | replace('', n.x) %}", ""),
        doubled("{% set n.x = n.x.replace('a', n.x) %}", ""),
        doubled("{% set n.x = n.x | join(n.x) %}", ""),
        doubled("{% set n.x = '%s%s' | format(n.x, n.x) %}", ""),
        doubled("{% set n.x = '{}{}'.format(n.x, n.x) %}", ""),
        doubled("{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}", ""),
        doubled("{% set n.x = n.x | tojson | tojson %}", ""),
        text.to_owned(),
        "{{ ('a' * 99999999) ~ ('b' * 99999999) }}".to_owned(),
        "{{ 'a' | indent(10000000000, true) }}".to_owned(),
        "{{ '%9999999999d' | format(1) }}".to_owned(),
        "{{ ([1] * 99999999) | list }}".to_owned(),
        "{{ [1] | batch(99999999, 1) | list | length }}".to_owned(),
        "{{ [1] | slice(99999999) | list | length }}".to_owned(),
        "{{ 'a'.center(9999999999) }}".to_owned(),
        "{{ messages | tojson(indent=10000000000) }}".to_owned(),
        "{{ range(10000000000) | list }}".to_owned(),
        format!("{small}{{% for i in range(9999) %}}{{% set n.x = n.x + [x ~ i] %}}{{% endfor %}}"),
        format!("{small}{{% for i in range(9999) %}}{{{{ x }}}}{{% endfor %}}"),
        format!("{{% for i in range(9999) %}}{}{{% endfor %}}", "a".repeat(9999)),
        "{% macro a(b) %}{{ b }}{% if b | length < 99999999 %}{{ a(b ~ b) }}{% endif %}{% endmacro %}{{ a('ab') }}"
            .to_owned(),
    ];
    let source = |default: &str| ChatSource { default: default.to_owned(), ..ChatSource::default() };
    let mut others = Vec::new();
    for form in &forms {
        let rendered = ChatTemplate::new(&source(form), None).map(|template| {
            let text = template.prompt(&value(r#"[{"role": "user", "content": "abc"}]"#), None);
            text.map_or_else(std::convert::identity, |text| format!("{} bytes", text.len()))
        });
        let said = rendered.unwrap_or_else(|error| error);
        if !said.ends_with("it takes more than 32 MiB of memory") {
            others.push(format!("{said}: {}", &form[..form.len().min(120)]));
        }
    }
    insta::assert_snapshot!(others.join("\n"));
}

/// As deep as memory lets them be, where nothing is lowered for tests.
#[test]
fn lists_within_lists_overflow_no_stack() {
    let nested = "{% set n = namespace(x=[]) %}{% for i in range(4999) %}{% set n.x = [n.x] %}{% endfor %}done";
    let message = value(r#"[{"role": "user", "content": "abc"}]"#);
    assert_eq!(template(nested).prompt(&message, None).unwrap(), "done");
    let bounds = crate::base::bounded::Bounds { bytes: 256 << 20, seconds: 60 };
    type End = fn(&Value) -> usize;
    let ends: [End; 3] =
        [|_| 0, |value| value.to_string().len(), |value| json::filter(value, kwargs()).unwrap_or_default().len()];
    for end in ends {
        let deep = |levels: u32| {
            let list = move || {
                let mut value = Value::from(1);
                (0..levels).for_each(|_| value = Value::from(vec![std::mem::take(&mut value)]));
                end(&value)
            };
            crate::base::bounded::run(bounds, list).map_err(|exceeded| exceeded.to_string())
        };
        assert!(deep(50_000).is_ok());
        assert_eq!(deep(1_000_000).unwrap_err(), "it takes more than 256 MiB of memory");
    }
}

fn kwargs() -> minijinja::value::Kwargs {
    std::iter::empty::<(String, Value)>().collect()
}
