//! Keys of a tokenizer that several files read or write.

pub(in crate::checkpoint::gguf) const MODEL_KEY: &str = "tokenizer.ggml.model";
pub(in crate::checkpoint::gguf) const ADD_BOS_KEY: &str = "tokenizer.ggml.add_bos_token";
pub(in crate::checkpoint::gguf) const BOS_KEY: &str = "tokenizer.ggml.bos_token_id";
pub(in crate::checkpoint::gguf) const EOS_KEY: &str = "tokenizer.ggml.eos_token_id";
pub(in crate::checkpoint::gguf) const PADDING_KEY: &str = "tokenizer.ggml.padding_token_id";
pub(in crate::checkpoint::gguf) const TEMPLATE_KEY: &str = "tokenizer.chat_template";
