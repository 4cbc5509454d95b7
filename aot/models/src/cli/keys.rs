//! `precast-aot keys`

use clap::Args;
use precast_system::say;

use super::failure::Failure;
use super::io::print_json;
use super::targets::Targets;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    targets: Targets,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let selection = arguments.targets.selection()?;
    let keys = selection.build_keys();
    let rows: Vec<(String, String, String)> = selection
        .archs
        .iter()
        .flat_map(|arch| {
            let pairs = keys.on(*arch).into_iter();
            pairs.map(|pair| (pair.key.to_string(), pair.variant.to_string(), arch.to_string()))
        })
        .collect();
    if arguments.json {
        let objects =
            rows.iter().map(|(key, variant, arch)| serde_json::json!({ "key": key, "variant": variant, "arch": arch }));
        print_json(&objects.collect::<Vec<_>>());
    } else {
        for (key, variant, arch) in &rows {
            say!("{arch:<7} {key}[{variant}]");
        }
    }
    Ok(())
}
