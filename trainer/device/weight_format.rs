//! Form of a frozen model's weights on the device: in the precision of the run, or as their file holds them, which give
//! the same bits; or in 8 bits, which gives others.

use precast_kernels::Arch;
use precast_plan::{Formats, MemoryTable, Plan, PlanError, human_bytes};
use precast_runtime::Device;

use crate::device::error::DeviceError;
use crate::options::{UsageError, WeightFormat};

/// Device memory for the kernels of a run, bytes, and more than they take: a plan that fits by less does not.
pub const KERNELS_BYTES: u64 = 64 << 20;

/// Said of weights that are to stay as their file stores them, where that is dense.
pub const DENSE: &str = "as bf16: nothing in it is quantized";

/// True if [`DENSE`] is to be said of a model, whose file has its matrices in `formats`.
pub fn is_stored_dense(asked: WeightFormat, formats: &Formats) -> bool {
    asked == WeightFormat::Stored && formats.is_dense()
}

/// True if a plan of so many bytes fits, with its kernels, into as many that are free.
pub fn fits(plan_bytes: u64, free_bytes: u64) -> bool {
    plan_bytes.saturating_add(KERNELS_BYTES) <= free_bytes
}

/// Input of a choice of format: a model's weights, and the flag that says how they live on the device.
pub struct Choice<'a> {
    /// `--teacher-format`, `--format`.
    pub flag: &'static str,
    /// By that flag.
    pub asked: WeightFormat,
    /// In which formats the model's file has its matrices.
    pub formats: &'a Formats,
}

/// The formats of matrices that live in a form, given those that their file has.
pub fn formats(form: WeightFormat, stored: Option<&Formats>) -> Formats {
    match form {
        WeightFormat::Int8 => Formats::int8(),
        WeightFormat::Stored => stored.cloned().unwrap_or_else(Formats::dense),
        WeightFormat::Bf16 | WeightFormat::Auto => Formats::dense(),
    }
}

/// Returns the part of a message that names the bytes of the host, where it shares the memory; else nothing.
pub fn beside(host_bytes: u64) -> String {
    if host_bytes > 0 { format!(" and {host_bytes} for the host, which shares it") } else { String::new() }
}

/// Returns a refusal's line on what a run would take with weights in 8 bits; empty where `bytes` is none.
fn rounded(flag: &str, bytes: Option<u64>) -> String {
    let line = |bytes| {
        format!(
            "With {flag} int8, which rounds what the GEMMs of layers read to 8 bits, it would take {bytes} bytes.\n"
        )
    };
    bytes.map(line).unwrap_or_default()
}

/// A plan, and the form of the weights that it is for.
#[derive(Debug)]
pub struct Chosen<P> {
    pub plan: P,
    /// Any but `Auto`.
    pub format: WeightFormat,
    /// Note on the choice, for people.
    pub note: Option<String>,
}

impl Choice<'_> {
    /// Refuses to keep weights as they are stored where that is a format which no kernel reads.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check(&self) -> Result<(), UsageError> {
        let Some(format) = self.formats.dequantized().filter(|_| self.asked == WeightFormat::Stored) else {
            return Ok(());
        };
        let flag = self.flag;
        Err(UsageError(format!(
            "{flag} stored: the model holds matrices in {format}, which no kernel reads: they are dequantized while they are \
             loaded. Use {flag} bf16, or auto"
        )))
    }

    /// Lowers the plan that is asked for; `auto` takes the first that fits into what is free of the device's memory, beside
    /// what the host takes of that.
    ///
    /// # Errors
    /// [`DeviceError::Unfit`] under `auto`, and those of `lower`.
    pub fn make<P: AsRef<Plan>>(
        &self,
        device: &Device,
        host_bytes: impl Fn(&P) -> u64,
        lower: impl Fn(&Formats) -> Result<P, PlanError>,
    ) -> Result<Chosen<P>, DeviceError> {
        let Self { flag, asked, formats } = *self;
        self.check()?;
        let dense = Formats::dense();
        let chosen = |formats: &Formats, format| Ok(Chosen { plan: lower(formats)?, format, note: None });
        if asked == WeightFormat::Int8 {
            return chosen(&Formats::int8(), asked);
        }
        // A format that no run of this kind can have is not offered.
        let int8 = || lower(&Formats::int8()).ok().map(|plan| plan.as_ref().arena_bytes);
        if formats.is_dense() {
            let plan = lower(&dense)?;
            let (needed, free) = (plan.as_ref().arena_bytes, device.free_bytes);
            if needed > free && device.arch() != Some(Arch::Sim) && !device.has_one_memory() {
                let int8 = rounded(flag, int8().filter(|bytes| *bytes < needed));
                return Err(DeviceError::memory(device, plan.as_ref(), needed, int8));
            }
            return Ok(Chosen { plan, format: WeightFormat::Bf16, note: None });
        }
        match asked {
            WeightFormat::Bf16 => return chosen(&dense, asked),
            WeightFormat::Stored => return chosen(formats, asked),
            WeightFormat::Auto if device.arch() == Some(Arch::Sim) => return chosen(&dense, WeightFormat::Bf16),
            WeightFormat::Auto | WeightFormat::Int8 => {}
        }
        let (wide, stored) = (lower(&dense)?, lower(formats)?);
        let [of_wide, of_stored] = [&wide, &stored].map(|plan| plan.as_ref().device_bytes());
        let free = device.free_bytes;
        let host = host_bytes(&wide).max(host_bytes(&stored));
        let (plan, format) = match (fits(of_wide + host, free), fits(of_stored + host, free)) {
            (true, _) => (wide, WeightFormat::Bf16),
            (false, true) => (stored, WeightFormat::Stored),
            (false, false) => {
                return Err(DeviceError::Unfit(format!(
                    "this run fits with weights in neither form: it takes {of_wide} bytes of device memory with {flag} bf16, {of_stored} \
                     with {flag} stored, and up to {KERNELS_BYTES} for kernels{}, and {} has {free} free. With stored:\n{}\n{}\
                     Use --recompute blocks, or a smaller --batch-size or --seq-len (and --grad-accum to keep the step's tokens)",
                    beside(host),
                    device.name,
                    MemoryTable::of(stored.as_ref()),
                    rounded(flag, int8())
                )));
            }
        };
        let other = if format == WeightFormat::Bf16 { WeightFormat::Stored } else { WeightFormat::Bf16 };
        let takes = |bytes: u64| format!("{} ({bytes} bytes)", human_bytes(bytes));
        let beside = (host > 0).then(|| format!(", {} more on the host, which shares its memory", takes(host)));
        let note = format!(
            "{flag} auto is {format}: this run takes {} with bf16 and {} with stored{}, and {} has {} free. \
             Both give the same bits; {flag} {other} asks for the other",
            takes(of_wide),
            takes(of_stored),
            beside.unwrap_or_default(),
            device.name,
            takes(free)
        );
        Ok(Chosen { plan, format, note: Some(note) })
    }
}

#[cfg(test)]
mod tests {
    use precast_kernels::Block;
    use precast_plan::chips::Clocks;
    use precast_runtime::Rows;

    use super::*;

    const ADA: Rows = Rows { launches: Arch::Sm89, code: Arch::Sm89 };
    const SIM: Rows = Rows { launches: Arch::Sim, code: Arch::Sim };

    /// A card, or the simulated GPU.
    fn device(free_bytes: u64, rows: Rows) -> Device {
        Device {
            name: "a card".into(),
            ordinal: "cuda:0".into(),
            compute_capability: (rows != SIM).then_some((8, 9)),
            driver_version: None,
            total_bytes: free_bytes,
            free_bytes,
            integrated: false,
            clocks: Clocks::default(),
            rows: Some(rows),
        }
    }

    #[derive(Debug)]
    struct Planned(Plan);

    impl AsRef<Plan> for Planned {
        fn as_ref(&self) -> &Plan {
            &self.0
        }
    }

    const GIB: u64 = 1 << 30;

    /// Chooses where so many GiB are free.
    fn choose(asked: WeightFormat, formats: &Formats, free_gib: u64) -> Result<Chosen<Planned>, DeviceError> {
        choose_on(&device(free_gib * GIB, ADA), asked, formats)
    }

    /// Chooses between plans of 30 GiB, of 20 where matrices are in blocks, and of 25 in 8 bits.
    fn choose_on(device: &Device, asked: WeightFormat, formats: &Formats) -> Result<Chosen<Planned>, DeviceError> {
        let plan = |formats: &Formats| {
            let gib = match (formats.is_int8(), formats.is_dense()) {
                (true, _) => 25,
                (_, true) => 30,
                (_, false) => 20,
            };
            Ok(Planned(Plan { arch: Arch::Sm89, buffers: Vec::new(), phases: Vec::new(), arena_bytes: gib * GIB }))
        };
        Choice { flag: "--teacher-format", asked, formats }.make(device, |_| 0, plan)
    }

    fn in_blocks() -> Formats {
        [("model.embed_tokens.weight".to_owned(), Block::Q4_K)].into_iter().collect()
    }

    #[test]
    fn auto_takes_the_first_form_that_fits_and_says_why() {
        let of = |free| choose(WeightFormat::Auto, &in_blocks(), free).unwrap();
        let [large, small] = [of(40), of(24)];
        assert_eq!((large.format, large.plan.0.arena_bytes), (WeightFormat::Bf16, 30 * GIB));
        assert_eq!((small.format, small.plan.0.arena_bytes), (WeightFormat::Stored, 20 * GIB));
        insta::assert_snapshot!(format!("{}\n\n{}", large.note.unwrap(), small.note.unwrap()));
        // The memory that the kernels take is not free.
        assert_eq!(of(30).format, WeightFormat::Stored);
    }

    #[test]
    fn dense_weights_that_do_not_fit_hear_of_8_bits() {
        let failure = choose(WeightFormat::Auto, &Formats::dense(), 26).unwrap_err();
        assert!(matches!(failure, DeviceError::Memory { .. }));
        let said = "With --teacher-format int8, which rounds what the GEMMs of layers read to 8 bits, it would take 26843545600 bytes";
        assert!(failure.to_string().contains(said), "{failure}");
        // Nor where they would fit in blocks, or where 8 bits alone would.
        let in_blocks = choose(WeightFormat::Auto, &in_blocks(), 22).unwrap();
        assert_eq!(in_blocks.format, WeightFormat::Stored);
    }

    #[test]
    fn a_form_that_is_asked_for_is_taken_whatever_fits() {
        for (asked, gib) in [(WeightFormat::Bf16, 30), (WeightFormat::Stored, 20), (WeightFormat::Int8, 25)] {
            let chosen = choose(asked, &in_blocks(), 1).unwrap();
            assert_eq!((chosen.format, chosen.plan.0.arena_bytes, chosen.note), (asked, gib * GIB, None));
        }
    }

    #[test]
    fn auto_is_bf16_on_the_simulated_gpu() {
        let chosen = choose_on(&device(GIB, SIM), WeightFormat::Auto, &in_blocks()).unwrap();
        assert_eq!((chosen.format, chosen.note), (WeightFormat::Bf16, None));
    }

    #[test]
    fn dense_weights_are_bf16_in_every_exact_form() {
        for asked in WeightFormat::ALL.into_iter().filter(|format| format.is_exact()) {
            let chosen = choose(asked, &Formats::dense(), 40).unwrap();
            assert_eq!((chosen.format, chosen.note), (WeightFormat::Bf16, None));
            assert_eq!(is_stored_dense(asked, &Formats::dense()), asked == WeightFormat::Stored);
        }
    }
}
