//! A plan as people read it.

use std::fmt::{self, Display, Formatter, from_fn};

use precast_plan::{Share, human_bytes};
use precast_runtime::cublas::KNOWN_VERSIONS;
use precast_system::count;

use super::kernels::{Kernel, Kernels, Product, Products};
use super::report::{Choice, Estimate, PhaseCount, Recomputes, Replicas, Report, Step};
use crate::device::fit::DENSE;
use crate::options::{ShapeOptions, WeightFormat};

/// How much of a plan people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The answer, and what takes memory and time.
    Brief,
    /// Every phase, launch and kernel, too.
    Full,
}

impl Report {
    /// As people read it: the answer first, missing kernels last.
    pub fn text(&self, detail: Detail) -> impl Display {
        from_fn(move |f| {
            self.memory_text(f)?;
            match detail {
                Detail::Brief => writeln!(f, "{}, which --verbose lists", count(self.kernels.list.len(), "kernel"))?,
                Detail::Full => self.launches_text(f)?,
            }
            self.experts.iter().try_for_each(|tiles| writeln!(f, "{tiles}"))?;
            self.teacher_pass
                .iter()
                .try_for_each(|micros| writeln!(f, "the teacher computes {micros} micro-batches at a time"))?;
            self.on_cuda_cores.iter().try_for_each(|gemms| writeln!(f, "{gemms}"))?;
            self.int8.iter().try_for_each(|note| writeln!(f, "{note}"))?;
            write!(f, "{}", self.step)?;
            self.data.iter().try_for_each(|data| write!(f, "\n{data}"))?;
            self.missing_kernels.iter().try_for_each(|missing| write!(f, "\n\n{missing}"))
        })
    }

    fn memory_text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.room {
            Some(answer) => writeln!(f, "{answer}")?,
            None => {
                let takes = human_bytes(self.memory.total_bytes);
                writeln!(f, "takes {takes} of device memory: --memory SIZE or --card NAME asks whether that fits\n")?;
            }
        }
        let ShapeOptions { batch_size, seq_len } = self.shape;
        writeln!(
            f,
            "memory on {}, batch {batch_size} x {seq_len} tokens, {}:\n{}",
            self.arch.argument(),
            self.precision,
            self.memory
        )?;
        if !self.teachers.is_empty() {
            self.teachers.iter().try_for_each(|teacher| writeln!(f, "{teacher}"))?;
            writeln!(f)?;
        }
        if let Some((trained, format)) = self.trained_parameters.zip(self.student_format) {
            let base = if self.teacher_is_base { ", which teaches too" } else { "" };
            let form = match format {
                WeightFormat::Int8 => "in int8".to_owned(),
                format => format!("--student-format {format}"),
            };
            writeln!(f, "an adapter trains: {trained} parameters. The student stays as it is, {form}{base}\n")?;
        }
        writeln!(f, "host memory, at most:\n{}", self.host_memory)?;
        if let Some(forms) = self.teacher_format.as_ref().filter(|forms| forms.choices.len() > 1) {
            write!(f, "\n{}", forms.table(self.room.as_ref().map(|answer| &answer.memory)))?;
        }
        self.ship.iter().try_for_each(|ship| writeln!(f, "{ship}"))?;
        self.stored_dense.iter().try_for_each(|flag| writeln!(f, "{flag} stored: {DENSE}"))?;
        writeln!(f, "\n{}", self.recompute)?;
        self.rollouts.iter().try_for_each(|rollouts| writeln!(f, "{rollouts}"))?;
        self.replicas.iter().try_for_each(|replicas| writeln!(f, "{replicas}"))
    }

    fn launches_text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.phases.iter().try_for_each(|phase| writeln!(f, "{phase}"))?;
        writeln!(f, "\n{}", self.kernels)?;
        self.cublas.iter().try_for_each(|products| writeln!(f, "{products}"))
    }
}

impl Display for Recomputes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "--recompute            takes                     launches in a micro-batch")?;
        for Choice { recompute, bytes, launches } in &self.choices {
            let chosen = if *recompute == self.chosen { "  (chosen)" } else { "" };
            let (name, human) = (recompute.to_string(), human_bytes(*bytes));
            writeln!(f, "  {name:<14} {human:>12}  {bytes:>16} bytes {launches:>6}{chosen}")?;
        }
        Ok(())
    }
}

impl Display for PhaseCount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, phases, launches, exchanges } = self;
        write!(f, "phase {name:<10} {launches:>5} launches")?;
        if *exchanges > 0 {
            write!(f, ", {}", count(*exchanges, "exchange"))?;
        }
        if *phases > 1 {
            write!(f, ", a layer at a time: {phases} phases")?;
        }
        Ok(())
    }
}

impl Display for Replicas {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { share, own_elems, elems, sent_bytes } = self;
        let Share { replicas, ranks, .. } = share;
        write!(
            f,
            "{replicas} replicas on {}: {} a GPU, {} further for gradients. A GPU updates {own_elems} of {elems} \
            weights and sends {} a step",
            count(*ranks as usize, "GPU"),
            share.local(),
            count(share.waiting() as usize, "buffer"),
            human_bytes(*sent_bytes)
        )
    }
}

impl Display for Kernels {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} kernels:", self.list.len())?;
        for Kernel { pair, launches, sha256 } in &self.list {
            let digest = sha256.as_ref().map_or(self.absent, |digest| &digest[..12]);
            writeln!(f, "  {launches:>5} x {digest:<17}  {pair}")?;
        }
        Ok(())
    }
}

impl Display for Products {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { products, in_place_of } = self;
        writeln!(f, "{} that cuBLASLt computes ({KNOWN_VERSIONS}):", count(products.len(), "GEMM"))?;
        for Product { key, launches } in products {
            writeln!(f, "  {launches:>5} x {key}")?;
        }
        writeln!(f, "in place of {} of --gemm bundle:", count(in_place_of.len(), "kernel"))?;
        in_place_of.iter().try_for_each(|pair| writeln!(f, "  {pair}"))
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { tokens, packed, flops, hidden_bytes, writes, estimate } = self;
        let what = if *packed { "places" } else { "tokens" };
        let of = if *writes { " where every sequence is whole, besides writing them" } else { "" };
        writeln!(f, "step: {tokens} {what}, {:.3} TFLOP of GEMMs{of}", *flops as f64 / 1e12)?;
        if let Some(bytes) = hidden_bytes {
            writeln!(
                f,
                "it reads {} ({bytes} bytes) of the cache, on the average of its sequences",
                human_bytes(*bytes)
            )?;
        }
        let Some(Estimate { device, seconds, tokens_per_s, row_tokens_per_s }) = estimate else {
            return write!(f, "no estimate: no peak figures are known of this device");
        };
        let rate = row_tokens_per_s.unwrap_or(*tokens_per_s);
        write!(
            f,
            "estimate (roofline, not measured): at least {:.1} ms a step, at most {rate:.0} tokens/s, by the peak \
            figures of a {device}",
            seconds * 1e3
        )
    }
}
