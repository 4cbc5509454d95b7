//! The device to run on.

use std::fmt;
use std::str::FromStr;

use precast_kernels::Arch;

/// The device to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU; the simulated one where there is neither a GPU nor kernels for one.
    Auto,
    /// A GPU by number.
    Cuda(u32),
    /// A GPU by number, with the portable kernels, those that every architecture has, and none of its own.
    Portable(u32),
    /// A GPU by number that stands in for those of an architecture: with its launches, built for the device.
    As(Arch, u32),
    /// The simulated GPU.
    Sim,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceChoice::Portable(ordinal) => write!(f, "portable:{ordinal}"),
            DeviceChoice::As(arch, ordinal) => write!(f, "as:{}:{ordinal}", arch.argument()),
            DeviceChoice::Sim => f.write_str("sim"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "sim" => Ok(DeviceChoice::Sim),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            other => match other.split_once(':').map(|(kind, ordinal)| (kind, ordinal.parse())) {
                Some(("cuda", Ok(ordinal))) => Ok(DeviceChoice::Cuda(ordinal)),
                Some(("portable", Ok(ordinal))) => Ok(DeviceChoice::Portable(ordinal)),
                Some(("generic", Ok(ordinal))) => Err(format!("`{text}` is `portable:{ordinal}` now")),
                Some(("as", _)) => stand_in(&other[3..]),
                _ => Err(format!("unknown device `{text}`: auto, cuda:N, portable:N, as:ARCH[:N] or sim")),
            },
        }
    }
}

/// Parses `ARCH` or `ARCH:N`.
fn stand_in(text: &str) -> Result<DeviceChoice, String> {
    let (name, ordinal) = text.split_once(':').unwrap_or((text, "0"));
    let ordinal = ordinal.parse().map_err(|_| format!("`{ordinal}` is no number of a GPU: as:ARCH:N"))?;
    let arch: Arch = name.parse().map_err(|error| format!("{error}"))?;
    match arch.feature() {
        Some(_) => Ok(DeviceChoice::As(arch, ordinal)),
        None => Err(format!("no GPU has {arch}: as: takes {}", Arch::GPUS.map(Arch::argument).join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_read_back() {
        for text in ["auto", "sim", "cuda:1", "portable:0", "as:sm_89:1", "as:sm_90:0"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("as:sm_120".parse(), Ok(DeviceChoice::As(Arch::Sm120, 0)));
        let refused = ["portable", "generic:2", "as:sm_75", "as:sm_90_portable", "as:sm_89:first", "as:"];
        insta::assert_snapshot!(refused.map(|text| text.parse::<DeviceChoice>().unwrap_err()).join("\n"));
    }
}
