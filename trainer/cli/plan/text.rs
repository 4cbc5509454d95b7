//! A plan as people read it.

use precast_kernels::Arch;
use precast_plan::memory::human_bytes;
use precast_plan::training::{GATHER, LAST, UPDATE};
use precast_plan::{MemoryTable, Plan, Share, Work};
use precast_runtime::cublas::KNOWN_VERSIONS;
use precast_system::{count, say};

use super::planned::{Choice, Kernels, Planned, Step};
use crate::options::ShapeOptions;
use crate::options::WeightFormat;

impl Planned<'_> {
    pub fn print(&self) {
        self.print_memory();
        self.forms.print(self.target);
        self.print_recompute();
        say!("");
        for (name, phases, launches, exchanges) in phases(&self.plan.plan) {
            let times = if phases > 1 { format!(", a layer at a time: {phases} phases") } else { String::new() };
            let exchanges = if exchanges == 0 { String::new() } else { format!(", {}", count(exchanges, "exchange")) };
            say!("phase {name:<8} {launches:>5} launches{exchanges}{times}");
        }
        self.print_replicas();
        // The simulated GPU executes references: it takes no kernels from a bundle.
        let is_reference = self.target.arch == Arch::Sim && self.config.target.kernels.bundle.is_none();
        self.kernels.print(if is_reference { "reference" } else { "not in the bundle" });
        self.step.print();
    }

    fn print_memory(&self) {
        let (ShapeOptions { batch_size, seq_len }, precision) = (&self.config.shape, self.config.arithmetic.precision);
        say!("memory on {}, batch {batch_size} x {seq_len} tokens, {precision}:", self.target.arch);
        say!("{}", MemoryTable::of(&self.plan.plan));
        if let Some((trained, format)) = self.trained.zip(self.student_format) {
            let base = if self.shared { ", which teaches too" } else { "" };
            let form =
                if format == WeightFormat::Int8 { "in int8".to_owned() } else { format!("--student-format {format}") };
            say!("an adapter trains: {trained} parameters. The student stays as it is, {form}{base}\n");
        }
        say!("host memory, at most:\n{}", self.host);
    }

    fn print_recompute(&self) {
        say!("\n--recompute            takes                     launches in a micro-batch");
        for Choice { recompute: name, bytes, launches } in &self.choices {
            let chosen = if *name == self.config.arithmetic.recompute.to_string() { "  (chosen)" } else { "" };
            say!("  {name:<14} {:>12}  {bytes:>16} bytes {launches:>6}{chosen}", human_bytes(*bytes));
        }
    }

    fn print_replicas(&self) {
        let share = &self.config.division.share;
        let Share { replicas, ranks, rank } = *share;
        if replicas <= 1 {
            return;
        }
        // What the start-up exchanges comes once.
        let phases = self.plan.plan.phases.iter();
        let phases = phases.filter(|phase| [LAST, UPDATE, GATHER].contains(&phase.name.as_str()));
        let exchanges = phases.flat_map(|phase| &phase.nodes).filter_map(|node| match &node.work {
            Work::Exchange(exchange) => Some(exchange.bytes(rank)),
            Work::Launch(_) => None,
        });
        let sent: u64 = exchanges.sum();
        say!(
            "\n{replicas} replicas on {}: {} a GPU, {} further for gradients. A GPU updates {} of {} weights and sends {} a step",
            count(ranks as usize, "GPU"),
            share.local(),
            count(share.waiting() as usize, "buffer"),
            self.plan.shards.own_elems(),
            self.plan.shards.elems(),
            human_bytes(sent)
        );
    }
}

impl Kernels {
    /// `absent` is said of a kernel without a digest.
    fn print(&self, absent: &str) {
        say!("\n{} kernels:", self.launches.len());
        for (pair, times) in &self.launches {
            let digest = self.digests.get(pair).map_or(absent, |digest| &digest[..12]);
            say!("  {times:>5} x {digest:<17}  {pair}");
        }
        if self.products.is_empty() {
            return;
        }
        say!("\n{} that cuBLASLt computes ({KNOWN_VERSIONS}):", count(self.products.len(), "product"));
        self.products.iter().for_each(|(key, count)| say!("  {count:>5} x {key}"));
        say!("in place of {} of --gemm bundle:", count(self.replaced.len(), "kernel"));
        self.replaced.iter().for_each(|pair| say!("  {pair}"));
    }
}

impl Step {
    fn print(&self) {
        let Self { tokens, flops, estimate } = self;
        say!("\nstep: {tokens} tokens, {:.3} TFLOP of products", *flops as f64 / 1e12);
        match estimate {
            Some((peak, seconds)) => say!(
                "estimate (roofline, not measured): at least {:.1} ms a step, at most {:.0} tokens/s, by the peak figures of a {}",
                seconds * 1e3,
                *tokens as f64 / seconds,
                peak.device
            ),
            None => say!("no estimate for the simulated GPU"),
        }
    }
}

/// The phases of a plan, those of a name but for a number as one: its name, how many they are, and their launches.
fn phases(plan: &Plan) -> Vec<(&str, usize, usize, usize)> {
    let mut all: Vec<(&str, usize, usize, usize)> = Vec::new();
    for phase in &plan.phases {
        let name = phase.name.split('.').next().unwrap_or_default();
        let of_phase = phase.launches().count();
        let moves = phase.nodes.len() - of_phase;
        match all.iter_mut().find(|known| known.0 == name) {
            Some((_, phases, launches, exchanges)) => {
                *phases += 1;
                *launches += of_phase;
                *exchanges += moves;
            }
            None => all.push((name, 1, of_phase, moves)),
        }
    }
    all
}
