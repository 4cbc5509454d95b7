//! Records the variant of each launch of a built-in model: a moved choice shows.

use std::fmt::Write;

use crate::support::*;

const ARCHS: [Arch; 5] = [Arch::Sm89, Arch::Sm90a, Arch::Sm90Portable, Arch::Sm121, Arch::Sim];

/// Returns every built-in model with a few layers: more are like them.
fn models() -> Vec<ModelConfig> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../aot/models");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let texts = files.map(|path| std::fs::read_to_string(path).unwrap());
    texts.map(|json| ModelConfig::from_json(&json).unwrap().representative()).collect()
}

/// Formats a build: `128x256x32s4/96`, the stages or the CTAs of a cluster after the tile, then the CTAs of the grid.
fn written(build: &Build) -> String {
    let numbers: BTreeMap<&str, u32> = build.variant.numbers().collect();
    let of = |name: &str| numbers.get(name).copied();
    let letter = |name: &str| of(name).map(|number| format!("{}{number}", &name[..1]));
    let tile = match ["tile_m", "tile_n", "tile_k"].map(of) {
        [Some(m), Some(n), Some(k)] => format!("{m}x{n}x{k}"),
        _ => of("tile").or(of("threads")).unwrap_or_default().to_string(),
    };
    let more = letter("stages").or(letter("cluster")).unwrap_or_default();
    format!("{tile}{more}/{}", build.geometry.grid.iter().product::<u32>())
}

/// Returns the build of each launch of a step that has a problem, mainly matrix multiplications.
type Choices = BTreeMap<(String, String), BTreeSet<String>>;

fn choices(models: &[ModelConfig], (batch, seq_len): (u32, u32), arch: Arch) -> Choices {
    let mut found = Choices::new();
    for (model, precision) in models.iter().flat_map(|model| Precision::ALL.map(|precision| (model, precision))) {
        let recipe = Recipe { batch, seq_len, precision, ..RECIPE };
        let int8 = Formats::int8();
        // A model with experts teaches another one.
        let trains = |student: &&ModelConfig| student.experts.is_none() && student.vocab == model.vocab;
        let student = models.iter().find(trains).filter(|_| model.experts.is_some()).unwrap_or(model);
        let taught = TrainingRequest::new(student, &recipe, arch);
        let taught = [taught.clone().taught_by(Some(model)), taught.taught_by(Some((model, &int8)))];
        for training in taught.into_iter().filter_map(|request| TrainingPlan::new(request).ok()) {
            for launch in training.plan.launches() {
                let problem = launch.key.kernel().problem(&launch.params);
                if let (Some(problem), Executor::Kernel(build)) = (problem, &launch.by) {
                    found.entry((launch.key.to_string(), problem)).or_default().insert(written(build));
                }
            }
        }
    }
    found
}

/// Compares the launches of one token and of a large batch, by key and m x n x k: the tile on each architecture.
#[test]
fn every_launch_of_a_built_in_model_is_built_as_it_was() {
    let models = models();
    assert_eq!(models.len(), 33);
    let mut text = format!("# {}\n", ARCHS.map(|arch| arch.to_string()).join(" "));
    for shape in [(1, 33), (8, 1024)] {
        let by_arch = ARCHS.map(|arch| choices(&models, shape, arch));
        let mut last = "";
        for (key, problem) in by_arch[0].keys() {
            if last != key {
                writeln!(text, "{key}").unwrap();
                last = key;
            }
            let tiles = by_arch.each_ref().map(|choices| {
                let tiles = &choices[&(key.clone(), problem.clone())];
                tiles.iter().cloned().collect::<Vec<_>>().join("|")
            });
            writeln!(text, "  {problem} {}", tiles.join(" ")).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}
