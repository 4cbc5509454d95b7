//! Variables of chat templates that a user gives.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

/// Variables that chat templates ask for, and no conversation has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatVariables {
    /// The day that `strftime_now` says; without it there is no such function.
    pub date: Option<NaiveDate>,
    /// The value of `enable_thinking`; undefined without it.
    pub enable_thinking: Option<bool>,
}

impl ChatVariables {
    /// Returns their texts, by which renderings differ.
    pub(super) fn texts(self) -> impl Iterator<Item = String> {
        let thinking = self.enable_thinking.map(|value| format!("enable_thinking={value}"));
        std::iter::once(self.date.map(|date| date.to_string()).unwrap_or_default()).chain(thinking)
    }
}
