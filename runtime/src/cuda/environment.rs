//! Checks and sets environment variables that change which code the driver runs, or when it loads it.

use std::ffi::{OsString, c_char, c_int};

use crate::driver::DriverError;

/// Makes the driver load modules and their data at once, not at a kernel's first launch.
const EAGER: [&std::ffi::CStr; 2] = [c"CUDA_MODULE_LOADING", c"CUDA_MODULE_DATA_LOADING"];

/// Lets NCCL use NVLink multicast, whose sums have no fixed order. NCCL adds nothing here, and it stays off.
const MULTICAST: &std::ffi::CStr = c"NCCL_NVLS_ENABLE";

/// Make the driver ignore machine code and compile PTX instead (CUDA programming guide, "CUDA Environment Variables");
/// 0 is off.
const FORCED_JIT: [&str; 2] = ["CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"];

/// Names a library that the driver loads at initialization and that may replace or patch any kernel: profilers and
/// checkers use it.
const INJECTION: &str = "CUDA_INJECTION64_PATH";

/// Permits an injected library.
const ALLOW_INJECTION: &str = "PRECAST_ALLOW_INJECTION";

unsafe extern "C" {
    fn setenv(name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int;
}

/// The dynamic loader runs this before `main`. Setting a variable later would race with threads that read the
/// environment through C; libcuda reads these once, in `cuInit`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = load_eagerly;

extern "C" fn load_eagerly() {
    for name in EAGER {
        // SAFETY: both are C strings, which setenv copies. A program's initializers run on its only thread.
        unsafe { setenv(name.as_ptr(), c"EAGER".as_ptr(), 1) };
    }
    // SAFETY: as above.
    unsafe { setenv(MULTICAST.as_ptr(), c"0".as_ptr(), 1) };
}

/// Refuses variables under which the driver would run other code than it is given.
///
/// # Errors
/// [`DriverError::Environment`] with the first such variable.
pub(super) fn check(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), DriverError> {
    let set = |name: &'static str| {
        let value = variable(name)?.to_string_lossy().into_owned();
        (!value.is_empty()).then_some((name, value))
    };
    if let Some((name, value)) = FORCED_JIT.into_iter().find_map(|name| set(name).filter(|(_, value)| value != "0")) {
        let effect = "the driver would ignore this program's machine code and compile PTX instead";
        return Err(DriverError::Environment { name, value, effect, remedy: "unset it".to_owned() });
    }
    match set(INJECTION) {
        Some((name, value)) if set(ALLOW_INJECTION).is_none_or(|(_, allowed)| allowed == "0") => {
            let effect = "the driver would load a foreign library, which could replace kernels";
            let remedy = format!("unset it; for a profiler or a checker, set {ALLOW_INJECTION}=1");
            Err(DriverError::Environment { name, value, effect, remedy })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(variables: &[(&str, &str)]) -> Result<(), String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        check(find).map_err(|error| error.to_string())
    }

    #[test]
    fn loading_is_eager_before_main() {
        for name in EAGER {
            assert_eq!(std::env::var(name.to_str().unwrap()).as_deref(), Ok("EAGER"));
        }
        assert_eq!(std::env::var("NCCL_NVLS_ENABLE").as_deref(), Ok("0"));
    }

    #[test]
    fn variables_that_change_what_runs_are_refused_by_name() {
        let refused = [
            &[("CUDA_FORCE_PTX_JIT", "1")][..],
            &[("CUDA_FORCE_JIT", "1")],
            &[("CUDA_INJECTION64_PATH", "/opt/tool.so")],
            &[("CUDA_INJECTION64_PATH", "/opt/tool.so"), ("PRECAST_ALLOW_INJECTION", "0")],
            &[("CUDA_FORCE_JIT", "1"), ("PRECAST_ALLOW_INJECTION", "1")],
        ];
        let messages = refused.map(|variables| checked(variables).unwrap_err());
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn others_and_those_that_are_off_are_not() {
        for variables in [
            &[][..],
            &[("CUDA_FORCE_PTX_JIT", "0"), ("CUDA_FORCE_JIT", "")],
            &[("CUDA_INJECTION64_PATH", "")],
            &[("CUDA_INJECTION64_PATH", "/opt/tool.so"), ("PRECAST_ALLOW_INJECTION", "1")],
            &[("CUDA_DISABLE_PTX_JIT", "1"), ("CUDA_LAUNCH_BLOCKING", "1"), ("CUDA_CACHE_DISABLE", "0")],
        ] {
            assert_eq!(checked(variables), Ok(()), "{variables:?}");
        }
    }
}
