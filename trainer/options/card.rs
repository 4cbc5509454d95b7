//! A GPU by its name in the table of chips, or by a part of it.

use std::cmp::Reverse;

use itertools::Itertools;
use precast_kernels::Arch;
use precast_plan::chips::{CHIPS, Chip};
use precast_plan::human_bytes;

/// Names that a refusal offers.
const NEAREST: usize = 3;

/// Finds the chip whose name this is, else the one whose name it is a part of; case, blanks and dashes do not count. Of
/// several with one size of memory and one architecture it is the first.
///
/// # Errors
/// The nearest names, or those that it is a part of.
pub(crate) fn card(text: &str) -> Result<&'static Chip, String> {
    let asked = letters(text);
    if let Some(chip) = CHIPS.iter().find(|chip| asked == letters(chip.name) || asked == own(chip)) {
        return Ok(chip);
    }
    let found: Vec<&Chip> = CHIPS.iter().filter(|chip| letters(chip.name).contains(&asked)).collect();
    match found[..] {
        [] => Err(unknown(&asked)),
        [first, ref others @ ..] if others.iter().all(|other| size(other) == size(first)) => Ok(first),
        _ => Err(ambiguous(&found)),
    }
}

/// Returns what counts of a name.
fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Returns a name without its vendor's.
fn own(chip: &Chip) -> String {
    letters(chip.name.trim_start_matches("NVIDIA "))
}

fn unknown(asked: &str) -> String {
    let nearness = |chip: &&Chip| (1e6 * strsim::sorensen_dice(asked, &own(chip))) as u64;
    let nearest = CHIPS.iter().sorted_by_key(|chip| Reverse(nearness(chip))).take(NEAREST);
    let names = nearest.map(|chip| chip.name).join(", ");
    format!("the table of chips has none of this name; the nearest are {names}. --memory SIZE takes any size")
}

/// Returns what a plan takes of a chip.
fn size(chip: &Chip) -> (u64, Arch) {
    (chip.memory.bytes(), chip.arch())
}

fn ambiguous(found: &[&Chip]) -> String {
    let by_size = found.iter().map(|chip| (size(chip), chip.name)).into_group_map();
    let sizes = by_size
        .iter()
        .sorted()
        .map(|((bytes, arch), names)| format!("{} on {} ({})", human_bytes(*bytes), arch.argument(), names.join(", ")));
    format!("this is a part of the names of chips that differ: {}", sizes.format("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chip_is_found_by_a_part_of_its_name() {
        let found =
            ["NVIDIA H200", "h200", "4090", "rtx-4090", "L4", "a10", "rtx pro 6000", "gb10", "H100 NVL", "b200"];
        let found = found.map(|text| format!("{text}: {}", card(text).unwrap().name));
        insta::assert_snapshot!(found.join("\n"));
    }

    #[test]
    fn every_chip_is_found_by_its_name() {
        for chip in &CHIPS {
            assert_eq!(card(chip.name).unwrap().name, chip.name);
            assert_eq!(card(&chip.name.replace("NVIDIA ", "")).unwrap().name, chip.name);
        }
    }

    #[test]
    fn the_page_of_devices_lists_every_chip_with_its_memory() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/devices.md");
        let page = std::fs::read_to_string(page).unwrap();
        for Chip { name, memory, .. } in &CHIPS {
            let row = format!("| `{name}` | {} |", human_bytes(memory.bytes()));
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_name_of_none_or_of_several_hears_of_those_there_are() {
        let refused = ["H100", "a100", "GH200", "RTX 4080", "B300", "V100", "MI300X", "6000"];
        insta::assert_snapshot!(refused.map(|text| format!("{text}: {}", card(text).unwrap_err())).join("\n"));
    }
}
