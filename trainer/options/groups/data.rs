//! Options of reading data, and of their order.

use chrono::NaiveDate;
use clap::{ArgAction, Args};
use serde::Serialize;

use super::values::{MOST_WINDOW, count};
use crate::inputs::chat::{ChatVariables, date};
use crate::inputs::data::Packing;

/// Options of making text of data, and tokens of text.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Data")]
pub struct TextOptions {
    /// Column to read instead of those that are looked for: text, token ids or messages
    #[arg(long, value_name = "COLUMN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_field: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub chat: ChatOptions,
}

/// Variables of chat templates.
#[derive(Args, Clone, Copy, Debug, Default, Serialize)]
pub struct ChatOptions {
    /// Date that strftime_now returns in chat templates, YYYY-MM-DD; undefined without it
    #[arg(long, value_name = "DATE", value_parser = date)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_date: Option<NaiveDate>,
    /// Value of enable_thinking in chat templates; undefined without it, and the template's own default holds
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
}

impl ChatOptions {
    /// Returns them as templates take them.
    pub fn variables(self) -> ChatVariables {
        ChatVariables { date: self.chat_date, enable_thinking: self.enable_thinking }
    }
}

/// Packing of rows of data into micro-batches.
#[derive(Args, Clone, Copy, Debug, Serialize)]
#[command(next_help_heading = "Data")]
pub struct PackingOptions {
    /// Rows in a micro-batch: rows (end to end), none (one a sequence, padded) or documents (as rows, and so is each
    /// document of text) [default: rows; none for text and token ids alone]
    #[arg(long, value_name = "P")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packing: Option<Packing>,
}

/// The order of training data.
#[derive(Args, Clone, Copy, Debug, Serialize)]
#[command(next_help_heading = "Data")]
pub struct OrderOptions {
    /// Seed of the shuffle, and of a new adapter
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Train on chunks in a new random order each pass, within windows of --shuffle-window
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    pub shuffle: bool,
    /// Chunks in a window of --shuffle; all of them are held in memory
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = count(MOST_WINDOW))]
    pub shuffle_window: u32,
}
