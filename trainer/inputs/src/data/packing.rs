//! Packing of rows into micro-batches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::opened::{Files, Holds, Opened};
use super::rows::Kind;

/// A way of packing rows into micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// Rows end to end, each alone.
    Rows,
    /// A row in a sequence of `seq_len` places, padded.
    #[default]
    None,
    /// Rows end to end, and each document of text is one, in pieces of at most a sequence.
    Documents,
}

impl Packing {
    pub const ALL: [Self; 3] = [Self::Rows, Self::None, Self::Documents];

    /// The packing of data with rows, where none is asked for.
    pub const DEFAULT_OF_ROWS: Self = Self::Rows;
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Packing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|packing| packing.to_string() == text);
        found.ok_or_else(|| format!("unknown packing `{text}`: rows, none or documents"))
    }
}

impl Files {
    /// Returns the packing of these files: that which is asked for, or the one of what they hold.
    ///
    /// # Errors
    /// Why it cannot be that which is asked for.
    pub fn packing(&self, asked: Option<Packing>) -> Result<Packing, String> {
        let has_rows = self.list.iter().any(|one| one.holds.kind().is_some_and(|kind| kind != Kind::Text));
        let ids = self.list.iter().find(|one| one.holds == Holds::Ids);
        let is_text = |one: &&Opened| one.holds == Holds::Document || one.holds.kind() == Some(Kind::Text);
        let text = self.list.iter().find(is_text);
        match (asked, ids, text) {
            (Some(asked @ (Packing::Rows | Packing::Documents)), Some(ids), _)
                if asked == Packing::Documents || !has_rows =>
            {
                Err(format!(
                    "--packing {asked}: {} has token ids, and nothing says where one text ends: leave --packing out, \
                    or give rows of text or input_ids",
                    ids.file.path.display()
                ))
            }
            (Some(Packing::Rows), _, Some(text)) if !has_rows => Err(format!(
                "--packing rows: {} has {}, and texts are documents, which fill whole sequences: give --packing \
                documents to have each see itself alone, or leave --packing out",
                text.file.path.display(),
                text.holds.what()
            )),
            (Some(asked), ..) => Ok(asked),
            (None, ..) if has_rows => Ok(Packing::DEFAULT_OF_ROWS),
            (None, ..) => Ok(Packing::None),
        }
    }
}
