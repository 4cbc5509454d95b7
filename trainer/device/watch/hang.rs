//! A device that hangs, in words.

use std::fmt;

use itertools::Itertools;
use precast_runtime::Doing;

use crate::base::checkpoint_name;
use crate::base::stop::resume_command;

/// A device that has done nothing for longer than its run's patience.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Ranks of the run; none of what is no run.
    pub ranks: Option<u32>,
}

impl Hang {
    /// 4: the device.
    pub const EXIT_CODE: u8 = 4;

    /// `seconds` are how long it has done nothing, and the patience.
    pub fn new(device: String, doing: Doing, seconds: (u64, u64), checkpoint: Option<u64>) -> Self {
        let Doing { mut phases, step, .. } = doing;
        phases.dedup();
        let (waited_s, patience_s) = seconds;
        Self { device, phases, step, waited_s, patience_s, checkpoint, ranks: None }
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
        let Self { device, waited_s, patience_s, ranks, checkpoint, .. } = self;
        let what = self.what();
        write!(f, "{device} hangs: {what} has not ended for {waited_s} s, and may take {patience_s}")?;
        if ranks.is_some_and(|ranks| ranks > 1) {
            f.write_str(", or another rank hangs that it waits for")?;
        }
        f.write_str(".\nThe system's log (dmesg) has an Xid where the GPU has failed")?;
        ranks.map_or(Ok(()), |_| write!(f, "; --patience SECONDS waits longer. {}", continuation(*checkpoint)))
    }
}

impl std::error::Error for Hang {}

#[cfg(test)]
mod tests {
    use super::*;

    fn hang(phases: &[&str], step: Option<u64>, ranks: u32, checkpoint: Option<u64>) -> String {
        let phases = phases.iter().map(|phase| (*phase).to_owned()).collect();
        let doing = Doing { progress: (1, 1), phases, step };
        let hang = Hang::new("cuda:0 (NVIDIA H200)".to_owned(), doing, (121, 120), checkpoint);
        let said = Hang { ranks: Some(ranks), ..hang }.to_string();
        // The command is that of the test.
        said.split("Continue with:").next().unwrap().to_owned()
    }

    #[test]
    fn a_hang_names_what_is_known_of_it_and_no_more() {
        let texts = [
            hang(&["micro"], Some(31), 1, Some(30)),
            hang(&["clear"], None, 1, None),
            hang(&["gather", "micro"], Some(2), 2, Some(1)),
            hang(&[], None, 1, None),
        ];
        insta::assert_snapshot!(texts.join("\n\n"));
    }
}
