//! Mistakes that are planted in copies of examples, as tables of `xtask/mistakes` list them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::run::root;

/// A file, a text in it, and another one.
pub type Edit = [String; 3];

/// A mistake, the command of cargo that finds it, and parts of the message.
#[derive(Deserialize)]
pub struct Mistake {
    pub what: String,
    #[serde(default)]
    pub command: String,
    pub edits: Vec<Edit>,
    pub says: Vec<String>,
}

#[derive(Deserialize)]
struct Table {
    mistake: Vec<Mistake>,
}

/// Reads the table of an example.
pub fn mistakes(example: &str) -> Result<Vec<Mistake>> {
    let path = root().join("xtask/mistakes").join(example).with_extension("toml");
    let table =
        fs::read_to_string(&path).map_err(anyhow::Error::from).and_then(|text| Ok(toml::from_str::<Table>(&text)?));
    Ok(table.with_context(|| path.display().to_string())?.mistake)
}

/// Makes an edit in the text of its file.
pub fn edited(text: &str, [file, before, after]: &Edit) -> Result<String> {
    ensure!(text.contains(before), "{file} is no longer what this mistake changes: {before}");
    Ok(text.replace(before, after))
}

/// Runs a command that must fail, and say so.
pub fn fails(command: &mut Command, says: &[impl AsRef<str>]) -> Result<()> {
    let ended = command.output()?;
    let text = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    ensure!(!ended.status.success(), "nothing is found:\n{text}");
    for part in says {
        let line = text.lines().find(|line| line.contains(part.as_ref()));
        println!("   {}", line.with_context(|| format!("the message lacks `{}`:\n{text}", part.as_ref()))?);
    }
    Ok(())
}
