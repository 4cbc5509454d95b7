//! Tuning: every variant that can run a launch, measured on its device.

use std::path::Path;

use precast_kernels::Variant;
use precast_kernels::tuned::Table;
use precast_plan::{Build, Executor, Launch, Plan};
use precast_system::{files, input};

use super::groups::{self, Group};
use super::open::{Bench, Reader};
use super::timing::{SAMPLES, median, sample};
use crate::base::startup_times::Startup;
use crate::device;
use crate::options::RunConfig;
use crate::run::failure::Failure;

/// A group of launches, and the same for each variant they may have.
struct Candidates {
    key: precast_kernels::Key,
    problem: String,
    groups: Vec<(Variant, Group)>,
}

/// Measures every launch of a step that has a choice of variants, and writes what each took into a table: that of the
/// file, with these launches re-measured. Returns how many there were.
///
/// # Errors
/// [`Failure`] of the models, the device or the file.
pub fn tune(config: &RunConfig, file: &Path, mut startup: Startup) -> Result<usize, Failure> {
    let (mut table, comments) = read(file)?;
    startup.end("arguments");
    let Bench { mut session, mut steps, of_plan: candidates } = Bench::open(config, &mut startup, Reader::Person, add)?;
    let (chip, arch) = (session.device().name.clone(), device::rows(session.device())?.launches);
    for Candidates { key, problem, groups } in &candidates {
        steps.one(&mut session)?;
        // In turn, so that none is measured on a warmer device than another.
        let mut seconds = vec![Vec::new(); groups.len()];
        for _ in 0..SAMPLES {
            for ((_, group), seconds) in groups.iter().zip(&mut seconds) {
                seconds.push(sample(&mut session, group)?);
            }
        }
        let times = groups.iter().zip(seconds).map(|((variant, _), seconds)| (*variant, median(seconds) * 1e6));
        table.insert((&chip, arch), key, problem, times);
    }
    files::write_whole(file, format!("{comments}{table}").as_bytes()).map_err(Failure::io("write", file))?;
    Ok(candidates.len())
}

/// A table and the comments above it; empty where there is no file yet.
fn read(file: &Path) -> Result<(Table, String), Failure> {
    let text = match input::read_text(file, input::SETTINGS_BYTES) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.map_err(Failure::io("read", file))?,
    };
    let table = text.parse().map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    let comments = text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    Ok((table, comments))
}

/// Adds to the plan a phase for each variant of each group of launches that has a choice.
fn add(plan: &mut Plan) -> Vec<Candidates> {
    let mut all: Vec<Candidates> = Vec::new();
    for group in groups::of(plan, &groups::step(plan)) {
        let launch = &group.launches[0];
        let (key, kernel) = (launch.key.clone(), launch.key.kernel());
        let Some(problem) = kernel.problem(&launch.params).filter(|_| launch.pair().is_some()) else { continue };
        let variants = kernel.variants(plan.arch).into_iter();
        let variants: Vec<Variant> = variants.filter(|variant| kernel.admits(*variant, &launch.params)).collect();
        // Launches that add to what is there take as long as those that do not.
        if variants.len() < 2 || all.iter().any(|known| known.key == key && known.problem == problem) {
            continue;
        }
        let built = variants.into_iter().map(|variant| {
            let timed_as = format!("tune.{key}.{problem}.{variant}");
            (variant, Group { timed_as, launches: as_variant(&group.launches, variant), ..group.clone() })
        });
        let groups = built.collect();
        all.push(Candidates { key, problem, groups });
    }
    plan.phases.extend(all.iter().flat_map(|candidates| &candidates.groups).map(|(_, group)| group.timed()));
    all
}

/// Returns these launches, built another way.
fn as_variant(launches: &[Launch], variant: Variant) -> Vec<Launch> {
    let built = |launch: &Launch| {
        let geometry = launch.key.kernel().geometry(variant, &launch.params);
        Launch { by: Executor::Kernel(Build { variant, geometry }), ..launch.clone() }
    };
    launches.iter().map(built).collect()
}

#[cfg(test)]
mod tests {
    use precast_kernels::Arch;
    use precast_plan::keys;

    use super::super::tests::plan;
    use super::*;

    #[test]
    fn every_product_of_a_step_is_measured_in_each_variant() {
        let mut plan = plan(Arch::Sm90a);
        let before = keys(&plan);
        let candidates = add(&mut plan);
        assert!(keys(&plan).is_superset(&before));
        for Candidates { key, problem, groups } in &candidates {
            assert!(key.text().starts_with("gemm.") && groups.len() >= 2, "{key} {problem}");
            for (variant, group) in groups {
                assert!(
                    plan.phase(&group.timed_as).launches().all(|launch| launch.pair().unwrap().variant == *variant)
                );
            }
        }
        let products = plan.launches().filter(|launch| launch.key.text().starts_with("gemm."));
        assert!(products.into_iter().all(|launch| candidates.iter().any(|candidate| candidate.key == launch.key)));
    }

    #[test]
    fn a_table_keeps_its_comments_and_other_launches() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tuned.txt");
        assert_eq!(read(&file).unwrap(), (Table::default(), String::new()));
        let text = "# why\nNVIDIA_H200 sm_90a key 1x1x1 threads=64 1.50\n";
        std::fs::write(&file, text).unwrap();
        let (table, comments) = read(&file).unwrap();
        assert_eq!(format!("{comments}{table}"), text);
        std::fs::write(&file, "nonsense").unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("line 1"));
    }
}
