//! The device to run on.

use std::fmt;
use std::str::FromStr;

/// The device to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU; the simulated one where there is neither a GPU nor kernels for one.
    Auto,
    /// A GPU by number.
    Cuda(u32),
    /// A GPU by number, with the portable kernels, those that every architecture has, and none of its own.
    Portable(u32),
    /// The simulated GPU.
    Sim,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceChoice::Portable(ordinal) => write!(f, "portable:{ordinal}"),
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
                Some(("portable" | "generic", Ok(ordinal))) => Ok(DeviceChoice::Portable(ordinal)),
                _ => Err(format!("unknown device `{text}`: auto, cuda:N, portable:N or sim")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_read_back() {
        for text in ["auto", "sim", "cuda:1", "portable:0"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        // What `portable` was called.
        assert_eq!("generic:2".parse(), Ok(DeviceChoice::Portable(2)));
        assert!("portable".parse::<DeviceChoice>().is_err());
    }
}
