//! From a request to a plan that fits: forms of weights and numbers of slots are chosen here, for a device, a card or a
//! number of bytes alike.

use precast_plan::{Formats, MemoryTable, Plan, PlanError};

use crate::device::DeviceError;
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::memory::{Memory, Takes};
use crate::device::unfit::{Remedy, Unfit};
use crate::options::{SlotChoice, SlotsUnfit, UsageError, WeightFormat};

/// The form of frozen weights, and slots of completions, that a plan is lowered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Any but `Auto`.
    pub format: WeightFormat,
    /// 0 of a plan that draws nothing.
    pub slots: u32,
    /// Micro-batches that a stored teacher computes at a time.
    pub pass: u32,
}

impl Choice {
    /// Returns a form, without slots.
    pub fn of(format: WeightFormat) -> Self {
        Self { format, slots: 0, pass: 1 }
    }
}

/// A request that plans are made of: training, generation, scoring, filling a cache.
pub trait Lower {
    type Plan: AsRef<Plan>;

    /// Returns the choices in the order of preference, the least last.
    fn choices(&self) -> Vec<Choice>;

    /// Lowers one of them.
    ///
    /// # Errors
    /// [`PlanError`].
    fn lower(&self, choice: Choice) -> Result<Self::Plan, PlanError>;

    /// Estimates what the host takes for a plan.
    fn host(&self, plan: &Self::Plan, owner: DeviceMemory) -> HostMemory;

    /// Says of the last choice that it does not fit, and what would.
    fn remedy(&self, unfit: &Fit<Self::Plan>) -> Remedy;
}

/// A plan, and how it compares with the memory that there is.
#[derive(Debug)]
pub struct Fit<P> {
    pub plan: P,
    pub choice: Choice,
    pub host: HostMemory,
    pub takes: Takes,
    /// None of an architecture, of which no memory is known.
    pub memory: Option<Memory>,
    /// Choices that were preferred and do not fit.
    pub passed: Vec<(Choice, Takes)>,
    /// None where it fits.
    pub remedy: Option<Remedy>,
}

/// Chooses the first plan of a request that fits; else the last, which is refused where it would be sealed.
///
/// # Errors
/// [`PlanError`] of the last.
pub fn fit<L: Lower>(request: &L, memory: Option<&Memory>) -> Result<Fit<L::Plan>, PlanError> {
    let (mut passed, mut last) = (Vec::new(), None);
    for choice in request.choices() {
        let found = compare(request, choice, memory);
        if let Ok(mut found) = found {
            if found.is_within() {
                found.passed = passed;
                return Ok(found);
            }
            passed.push((choice, found.takes));
            last = Some(Ok(found));
        } else {
            last = Some(found);
        }
    }
    let mut last = last.expect("a request has a choice")?;
    passed.pop();
    last.passed = passed;
    last.remedy = Some(request.remedy(&last));
    Ok(last)
}

/// Compares one choice.
///
/// # Errors
/// [`PlanError`].
pub fn compare<L: Lower>(request: &L, choice: Choice, memory: Option<&Memory>) -> Result<Fit<L::Plan>, PlanError> {
    let plan = request.lower(choice)?;
    let owner = memory.map_or(DeviceMemory::Own, |memory| memory.owner);
    let host = request.host(&plan, owner);
    Ok(Fit::new(plan, choice, host, memory.cloned()))
}

/// Returns the most slots below those of a choice with which a request fits in one of some forms; 0 where not even one
/// does.
pub fn most_slots<L: Lower>(request: &L, asked: u32, forms: &[WeightFormat], memory: Option<&Memory>) -> SlotsUnfit {
    let fits = |slots| {
        let choices = forms.iter().map(|format| Choice { slots, ..Choice::of(*format) });
        choices.into_iter().any(|choice| compare(request, choice, memory).is_ok_and(|found| found.is_within()))
    };
    let most = SlotChoice::Count(asked).tries(asked.into()).skip(1).find(|slots| fits(*slots)).unwrap_or(0);
    SlotsUnfit { asked, most }
}

impl<P: AsRef<Plan>> Fit<P> {
    /// Compares one plan, which somebody has chosen.
    pub fn new(plan: P, choice: Choice, host: HostMemory, memory: Option<Memory>) -> Self {
        let host_bytes = match memory.as_ref().map(|memory| memory.owner) {
            Some(DeviceMemory::Shared) => host.total_bytes,
            Some(DeviceMemory::Own) | None => 0,
        };
        let takes = Takes { bytes: plan.as_ref().device_bytes(), host_bytes };
        Self { plan, choice, host, takes, memory, passed: Vec::new(), remedy: None }
    }

    /// Returns true if it fits, or nothing is known that it could exceed.
    pub fn is_within(&self) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.fits(self.takes))
    }

    /// Changes the plan: to other variants, or by what is measured.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change<T, E>(&mut self, change: impl FnOnce(&mut P) -> Result<T, E>) -> Result<T, E> {
        let changed = change(&mut self.plan)?;
        self.takes.bytes = self.plan.as_ref().device_bytes();
        Ok(changed)
    }

    /// Refuses a plan that does not fit.
    ///
    /// # Errors
    /// [`DeviceError::Memory`].
    pub fn check(&self) -> Result<(), DeviceError> {
        let Some(memory) = self.memory.clone().filter(|_| !self.is_within()) else { return Ok(()) };
        let host = match memory.owner {
            DeviceMemory::Own => String::new(),
            DeviceMemory::Shared => format!("\non the host:\n{}", self.host),
        };
        let other = self.passed.iter().rev().find(|(choice, _)| choice.format != self.choice.format);
        let other = other.map_or_else(String::new, |(choice, takes)| {
            format!(
                "\nWith {} it takes {} bytes of device memory, with {} {}.",
                choice.format, takes.bytes, self.choice.format, self.takes.bytes
            )
        });
        let table = format!("{}{host}{other}", MemoryTable::of(self.plan.as_ref()));
        let remedy = self.remedy.clone().unwrap_or_default();
        Err(Unfit { takes: self.takes, memory, table, remedy }.into())
    }
}

/// Said of weights that are to stay as their file stores them, where that is dense.
pub const DENSE: &str = "as bf16: nothing in it is quantized";

/// Returns true if [`DENSE`] is to be said of a model, whose file has its matrices in `stored`.
pub fn is_stored_dense(asked: WeightFormat, stored: &Formats) -> bool {
    asked == WeightFormat::Stored && stored.is_dense()
}

/// Returns the forms that a flag asks for, of weights whose file has its matrices in `stored`, in the order of
/// preference.
pub fn forms(asked: WeightFormat, stored: &Formats) -> Vec<WeightFormat> {
    match asked {
        WeightFormat::Int8 => vec![asked],
        _ if stored.is_dense() => vec![WeightFormat::Bf16],
        WeightFormat::Auto => vec![WeightFormat::Bf16, WeightFormat::Stored],
        WeightFormat::Bf16 | WeightFormat::Stored => vec![asked],
    }
}

/// Returns the formats of matrices that live in a form, given those that their file has.
pub fn formats(form: WeightFormat, stored: Option<&Formats>) -> Formats {
    match form {
        WeightFormat::Int8 => Formats::int8(),
        WeightFormat::Stored => stored.cloned().unwrap_or_else(Formats::dense),
        WeightFormat::Bf16 | WeightFormat::Auto => Formats::dense(),
    }
}

/// Refuses to keep weights as they are stored where that is a format which no kernel reads.
///
/// # Errors
/// [`UsageError`].
pub fn check_stored(flag: &str, asked: WeightFormat, stored: &Formats) -> Result<(), UsageError> {
    let Some(format) = stored.dequantized().filter(|_| asked == WeightFormat::Stored) else { return Ok(()) };
    Err(UsageError(format!(
        "{flag} stored: the model holds matrices in {format}, which no kernel reads: they are dequantized while they \
        are \
         loaded. Use {flag} bf16, or auto"
    )))
}

/// Returns a note on a form that was chosen and not asked for.
pub fn note_form<P>(fit: &Fit<P>, flag: &str, asked: WeightFormat, stored: &Formats) -> Option<String> {
    if asked != WeightFormat::Auto || stored.is_dense() {
        return None;
    }
    let form = fit.choice.format;
    let other = if form == WeightFormat::Bf16 { WeightFormat::Stored } else { WeightFormat::Bf16 };
    let why = match fit.passed.iter().rev().find(|(choice, _)| choice.format == other).zip(fit.memory.as_ref()) {
        Some(((_, takes), memory)) => format!(
            ": with {other} it takes {} bytes{}, and {memory}",
            takes.bytes,
            takes.beside(|bytes| bytes.to_string())
        ),
        None => ", which fits".to_owned(),
    };
    Some(format!("{flag} auto is {form}{why}. Both give the same bits; {flag} {other} asks for the other"))
}

#[cfg(test)]
mod tests {
    use precast_kernels::{Arch, Block};
    use precast_plan::chips::Clocks;
    use precast_runtime::{Device, Rows};
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    /// A request whose plans take 30 GiB, 20 where matrices are in blocks, 25 in 8 bits, and `slot` bytes a slot.
    struct Request {
        asked: WeightFormat,
        stored: Formats,
        slots: Option<SlotChoice>,
        slot: u64,
    }

    impl Request {
        fn of(asked: WeightFormat) -> Self {
            let stored = [("model.embed_tokens.weight".to_owned(), Block::Q4_K)].into_iter().collect();
            Self { asked, stored, slots: None, slot: 0 }
        }
    }

    #[derive(Debug)]
    struct Planned(Plan);

    impl AsRef<Plan> for Planned {
        fn as_ref(&self) -> &Plan {
            &self.0
        }
    }

    impl Lower for Request {
        type Plan = Planned;

        fn choices(&self) -> Vec<Choice> {
            let slots: Vec<u32> = match self.slots {
                None => vec![0],
                Some(SlotChoice::Count(count)) => vec![count],
                Some(SlotChoice::Auto) => SlotChoice::Auto.tries(300).collect(),
            };
            let forms = forms(self.asked, &self.stored);
            slots
                .iter()
                .flat_map(|slots| forms.iter().map(|format| Choice { slots: *slots, ..Choice::of(*format) }))
                .collect()
        }

        fn lower(&self, Choice { format, slots, .. }: Choice) -> Result<Planned, PlanError> {
            let gib = match format {
                WeightFormat::Int8 => 25,
                WeightFormat::Stored => 20,
                WeightFormat::Bf16 | WeightFormat::Auto => 30,
            };
            let arena_bytes = gib * GIB + self.slot * u64::from(slots);
            Ok(Planned(Plan { arch: Arch::Sm89, buffers: Vec::new(), phases: Vec::new(), arena_bytes }))
        }

        fn host(&self, plan: &Planned, owner: DeviceMemory) -> HostMemory {
            HostMemory::of_parts(&plan.0, &[("results", GIB)], owner)
        }

        fn remedy(&self, unfit: &Fit<Planned>) -> Remedy {
            let slots = self
                .slots
                .map(|_| most_slots(self, unfit.choice.slots, &forms(self.asked, &self.stored), unfit.memory.as_ref()));
            Remedy { slots, ..Remedy::default() }
        }
    }

    fn memory(free: u64, arch: Arch, integrated: bool) -> Memory {
        Memory::of(&Device {
            name: "a card".into(),
            ordinal: "cuda:0".into(),
            compute_capability: (arch != Arch::Sim).then_some((8, 9)),
            driver_version: None,
            total_bytes: free,
            free_bytes: free,
            integrated,
            clocks: Clocks::default(),
            rows: Some(Rows { launches: arch, code: arch }),
        })
    }

    fn found(request: &Request, memory: &Memory) -> Fit<Planned> {
        fit(request, Some(memory)).unwrap()
    }

    #[test]
    fn auto_takes_the_first_form_that_fits_and_says_why() {
        let auto = Request::of(WeightFormat::Auto);
        let of = |bytes| found(&auto, &memory(bytes, Arch::Sm89, false));
        let [large, small] = [of(40 * GIB), of(24 * GIB)];
        assert_eq!([large.choice.format, small.choice.format], [WeightFormat::Bf16, WeightFormat::Stored]);
        let note = |fit: &Fit<Planned>| note_form(fit, "--teacher-format", auto.asked, &auto.stored).unwrap();
        insta::assert_snapshot!(format!("{}\n\n{}", note(&large), note(&small)));
        // The memory that the kernels take is not free.
        assert_eq!(of(30 * GIB).choice.format, WeightFormat::Stored);
        // Nothing is known of an architecture.
        assert_eq!(fit(&auto, None).unwrap().choice.format, WeightFormat::Bf16);
    }

    #[test]
    fn a_form_that_is_asked_for_is_taken_whatever_fits_and_refused_where_it_does_not() {
        for (asked, gib) in [(WeightFormat::Bf16, 30), (WeightFormat::Stored, 20), (WeightFormat::Int8, 25)] {
            let found = found(&Request::of(asked), &memory(GIB, Arch::Sm89, false));
            assert_eq!((found.choice.format, found.takes.bytes), (asked, gib * GIB));
            assert!(matches!(found.check(), Err(DeviceError::Memory(_))));
        }
        let dense = Request { stored: Formats::dense(), ..Request::of(WeightFormat::Stored) };
        assert_eq!(found(&dense, &memory(40 * GIB, Arch::Sm89, false)).choice.format, WeightFormat::Bf16);
        assert!(is_stored_dense(dense.asked, &dense.stored));
    }

    #[test]
    fn what_a_shared_memory_has_to_hold_is_refused_with_both_tables() {
        let bf16 = Request::of(WeightFormat::Bf16);
        let unfit = found(&bf16, &memory(30 * GIB, Arch::Sm89, true)).check().unwrap_err();
        insta::assert_snapshot!(unfit);
    }

    proptest! {
        /// The choice is the first of the request that fits; nothing that is refused would have fit.
        #[test]
        fn the_first_choice_that_fits_is_taken(
            free in 0_u64..64 * GIB,
            slot in prop_oneof![Just(0), 1_u64..GIB / 4],
            asked in prop::sample::select(&WeightFormat::ALL[..]),
            count in prop::option::of(1_u32..400),
            draws in any::<bool>(),
            integrated in any::<bool>(),
            arch in prop::sample::select(vec![Arch::Sm89, Arch::Sm121, Arch::Sim]),
        ) {
            let slots = draws.then_some(count.map_or(SlotChoice::Auto, SlotChoice::Count));
            let request = Request { slots, slot, ..Request::of(asked) };
            let memory = memory(free, arch, integrated);
            let found = found(&request, &memory);
            let takes = |choice| compare(&request, choice, Some(&memory)).unwrap().takes;
            let choices = request.choices();
            let first = choices.iter().find(|choice| memory.fits(takes(**choice)));
            prop_assert_eq!(found.choice, *first.unwrap_or(&choices[choices.len() - 1]));
            prop_assert_eq!((found.is_within(), found.check().is_ok()), (first.is_some(), first.is_some()));
            let host = if memory.owner == DeviceMemory::Shared { found.host.total_bytes } else { 0 };
            prop_assert_eq!(found.is_within(), found.takes.bytes + host + memory.kernels <= free);
            if let Some(SlotsUnfit { asked, most }) = found.remedy.as_ref().and_then(|remedy| remedy.slots) {
                prop_assert!(most < asked);
                let fits = |slots| forms(request.asked, &request.stored).into_iter()
                    .any(|format| memory.fits(takes(Choice { slots, ..Choice::of(format) })));
                prop_assert!(most == 0 || fits(most));
            }
        }
    }
}
