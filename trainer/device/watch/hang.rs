//! A device that hangs, in words.

use std::fmt;
use std::path::PathBuf;

use itertools::Itertools;
use precast_runtime::{Doing, NodeName};
use serde::{Deserialize, Serialize};

use crate::base::checkpoint_name;
use crate::base::stop::resume_command;

/// A device that has done nothing for longer than its run's patience.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hang {
    /// `cuda:0 (NVIDIA H200)`.
    pub device: String,
    /// The phases one of which hangs.
    pub phases: Vec<String>,
    /// Step that hangs, counted from 1; none before the first.
    pub step: Option<u64>,
    /// Seconds that it has done nothing that can be seen, and the seconds that it might have.
    pub waited_s: u64,
    pub patience_s: u64,
    /// The step of the last checkpoint.
    pub checkpoint: Option<u64>,
    /// Parts of a step whose gradients are added by a tree; none of what is no run.
    pub replicas: Option<u32>,
    /// Output directory of the run, from the root, and what `run.json` there says of its end.
    pub out: Option<PathBuf>,
    pub recorded: Option<String>,
    #[serde(skip)]
    pub node: Node,
}

/// Knowledge of the node that hangs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Node {
    /// Nobody has looked for it.
    #[default]
    Unsought,
    /// Alone, in a replay, it does not end within so many seconds.
    Found(NodeName, u64),
    /// In a replay all nodes have ended.
    AllEnd,
    /// The replay has not shown it.
    Unknown(String),
    /// A rank may wait for another one.
    OfRanks,
}

impl Hang {
    /// 4: the device.
    pub const EXIT_CODE: u8 = 4;

    /// `seconds` are how long it has done nothing, and the patience.
    pub fn new(device: String, doing: Doing, seconds: (u64, u64), checkpoint: Option<u64>) -> Self {
        let Doing { mut phases, step, node, .. } = doing;
        phases.dedup();
        let (waited_s, patience_s) = seconds;
        let node = node.map_or(Node::Unsought, |node| Node::Found(node, waited_s));
        Self { device, phases, step, waited_s, patience_s, checkpoint, replicas: None, out: None, recorded: None, node }
    }

    /// Names the phase that hangs and its step.
    pub fn what(&self) -> String {
        what(&self.phases, self.step)
    }
}

/// Names the work of a device: phases, of which it may be in any, and their step.
pub(crate) fn what(phases: &[String], step: Option<u64>) -> String {
    let quoted: Vec<String> = phases.iter().dedup().map(|phase| format!("`{phase}`")).collect();
    let what = match quoted.as_slice() {
        [] => "a call to its driver".to_owned(),
        [one] => format!("phase {one}"),
        several => format!("one of the phases {}", several.join(", ")),
    };
    step.map_or(what.clone(), |step| format!("{what} of step {step}"))
}

/// Says how a run goes on from its last checkpoint, if it has one.
pub(crate) fn continuation(checkpoint: Option<u64>) -> String {
    let Some(step) = checkpoint else {
        return "There is no checkpoint yet: start again with --overwrite".to_owned();
    };
    format!("The last checkpoint is {}. Continue with:\n  {}", checkpoint_name::name(step), resume_command())
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, waited_s, patience_s, node, replicas, checkpoint, .. } = self;
        let what = self.what();
        write!(f, "{device} hangs: {what} has not ended for {waited_s} s, and may take {patience_s}")?;
        match node {
            Node::Unsought => {}
            Node::Found(node, seconds) => write!(f, ".\nIt is {node}: alone, it does not end within {seconds} s")?,
            Node::AllEnd => f.write_str(
                ".\nWhich node it is depends on the weights, the data or the moment: replayed alone, on random tokens, all of them end",
            )?,
            Node::Unknown(why) => write!(f, ".\nWhich node it is is not known: {why}")?,
            Node::OfRanks => f.write_str(", or another rank hangs that it waits for")?,
        }
        f.write_str(".\nThe system's log (dmesg) has an Xid where the GPU has failed")?;
        replicas.map_or(Ok(()), |_| write!(f, "; --patience SECONDS waits longer. {}", continuation(*checkpoint)))
    }
}

impl std::error::Error for Hang {}

#[cfg(test)]
mod tests {
    use precast_kernels::Key;
    use precast_kernels::add::Add;

    use super::*;

    fn hang(phases: &[&str], step: Option<u64>, node: Node, checkpoint: Option<u64>) -> String {
        let phases = phases.iter().map(|phase| (*phase).to_owned()).collect();
        let doing = Doing { progress: (1, 1, 1), phases, step, node: None };
        let hang = Hang::new("cuda:0 (NVIDIA H200)".to_owned(), doing, (121, 120), checkpoint);
        let said = Hang { node, replicas: Some(1), ..hang }.to_string();
        // The command is that of the test.
        said.split("Continue with:").next().unwrap().to_owned()
    }

    #[test]
    fn a_hang_names_what_is_known_of_it_and_no_more() {
        let label = "layer 3: residual".to_owned();
        let found = NodeName { number: 17, of: 214, label, key: Some(Key::new(Add {})) };
        let texts = [
            hang(&["micro"], Some(31), Node::Found(found, 12), Some(30)),
            hang(&["micro"], Some(31), Node::AllEnd, None),
            hang(&["clear"], None, Node::Unknown("the replay did not come to it within 60 s".to_owned()), None),
            hang(&["gather", "micro"], Some(2), Node::OfRanks, Some(1)),
            hang(&[], None, Node::Unsought, None),
        ];
        insta::assert_snapshot!(texts.join("\n\n"));
    }
}
