//! Plain kernels that have a reference: what their header declares is what their file does.

use crate::arch::Arch;
use crate::plain::{Parameter, PlainKernel};

/// A header does not declare the plain kernel that its key names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The key has another name, or fields.
    #[error(
        "`{key}` declares the kernel `{kernel}` of {file}: a header names it `{kernel} {{}}`, without fields, since \
        the file gets no macros; a kernel of a template can have no reference"
    )]
    Name {
        /// Operation, or key with its fields.
        key: String,
        /// Name in the file.
        kernel: &'static str,
        /// The file.
        file: &'static str,
    },
    /// A field of the header's struct is not the parameter in its place.
    #[error(
        "parameter {number} of `{kernel}` in {file} is {found}, and the header's struct of `{kernel}` has {declared}: \
        give the struct the kernel's parameters in their order, and run the command at the head of its abi.rs"
    )]
    Parameter {
        /// Name of the kernel.
        kernel: &'static str,
        /// The file.
        file: &'static str,
        /// Number of the parameter, from 1.
        number: usize,
        /// Name, size and offset in the header.
        declared: String,
        /// Name, size and offset in the file.
        found: String,
    },
    /// A launch has no geometry on an architecture, for which the file is compiled.
    #[error(
        "`{kernel}` of {file} has no variant on {arch}: `variants` of its `Build` returns one for each architecture"
    )]
    NoVariant {
        /// Name of the kernel.
        kernel: &'static str,
        /// The file.
        file: &'static str,
        /// The architecture.
        arch: Arch,
    },
    /// An operation and a plain kernel are two kernels, and a key names both.
    #[error(
        "the operation `{name}` is not the kernel `{name}` of {file}: `plain` of its `Build` returns that one if it \
        is; else one of the two needs another name"
    )]
    Other {
        /// Name of both.
        name: &'static str,
        /// File of the plain one.
        file: &'static str,
    },
}

/// Compares a name and the fields of a header's struct with a kernel. Alignment is the same where all offsets are.
pub(crate) fn compare(name: &str, declared: &[Parameter], plain: &'static PlainKernel) -> Result<(), ReferenceError> {
    let (kernel, file) = (plain.name, plain.unit.source.path);
    if name != kernel {
        return Err(ReferenceError::Name { key: name.to_owned(), kernel, file });
    }
    let says = |parameter: Option<&Parameter>| match parameter {
        Some(Parameter { name, offset, bytes, .. }) => format!("`{name}`, {bytes} bytes at offset {offset}"),
        None => "nothing".to_owned(),
    };
    for index in 0..plain.parameters.len().max(declared.len()) {
        let (declared, found) = (says(declared.get(index)), says(plain.parameters.get(index)));
        if declared != found {
            return Err(ReferenceError::Parameter { kernel, file, number: index + 1, declared, found });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::host::Views;
    use crate::plain::PlainUnit;
    use crate::*;

    use super::compare;

    static UNIT: PlainUnit = PlainUnit {
        source: Source { path: "k/a.cu", text: "", headers: &[], common: &source::AS_IT_IS },
        entries: &["scale"],
        instances: &[],
        interface: "",
        file: "src/kernels.rs",
        command: "precast-aot abi k/a.cu --out src/kernels.rs",
    };

    plain! {
        #[allow(dead_code)]
        UNIT SCALE = "scale" as "scale",
        scale(x: u64 = 0, n: i32 = 8, y: u64 = 16, last: u32 = 24)
    }

    parameters! {
        /// Its parameters, and what C leaves between and behind them.
        pub struct scale_params, ScaleArgs {
            operand x(Read => Dtype::F32, n);
            scalar n(u32);
            internal reserved(u32);
            operand y(Write => Dtype::F32, n);
            scalar last(u32);
            internal reserved2(u32);
        }
        |self, p| [n = p.n] {}
        /// As it is.
        kernel Scale = "scale" {};
        /// As it is, for one architecture.
        kernel OfHopper = "scale" {};
    }

    impl Build for Scale {
        type Variant = Threads;

        fn plain(&self) -> Option<&'static PlainKernel> {
            Some(&SCALE)
        }
        fn source(&self, _variant: Threads) -> Source {
            unreachable!("it is the file's")
        }
        fn variants(&self, _arch: Arch) -> Vec<Threads> {
            [128, 256].map(|threads| Threads { threads }).into()
        }
        fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
            Geometry::strided(u64::from(p.n), variant.threads)
        }
    }

    impl Reference for Scale {
        fn examples() -> Vec<Self> {
            vec![Self {}]
        }
        fn host(&self, _p: &Self::Params, _views: &mut Views<'_>) {}
        fn samples(&self) -> Vec<Self::Params> {
            vec![Self::Params { n: 5, ..Default::default() }]
        }
    }

    impl Build for OfHopper {
        type Variant = Threads;

        fn plain(&self) -> Option<&'static PlainKernel> {
            Some(&SCALE)
        }
        fn variants(&self, arch: Arch) -> Vec<Threads> {
            if arch == Arch::Sm90a { vec![Threads { threads: 128 }] } else { Vec::new() }
        }
        fn geometry(&self, variant: Threads, _p: &Self::Params) -> Geometry {
            Geometry::linear(1, variant.threads)
        }
    }

    impl Reference for OfHopper {
        fn examples() -> Vec<Self> {
            vec![Self {}]
        }
        fn host(&self, _p: &Self::Params, _views: &mut Views<'_>) {}
        fn samples(&self) -> Vec<Self::Params> {
            Vec::new()
        }
    }

    /// Without a reference it is compiled for all.
    #[test]
    fn a_kernel_without_a_variant_on_an_architecture_is_refused() {
        let said = Key::new(OfHopper {}).is_as_its_file().unwrap_err().to_string();
        let expected = "`scale` of k/a.cu has no variant on sm_80: `variants` of its `Build` returns one";
        assert!(said.starts_with(expected), "{said}");
    }

    #[test]
    fn a_plain_kernel_with_a_reference_is_compiled_as_one_without() {
        static BOTH: Kernels = Kernels::new("of the test", &[Op::of::<Scale>()], &[&SCALE]);
        let [key] = &BOTH.examples()[..] else { panic!("{:?}", BOTH.examples()) };
        assert_eq!((BOTH.are_as_their_files(), BOTH.parse("scale{}")), (Ok(()), Ok(key.clone())));
        let sample = &key.kernel().samples()[0];
        assert_eq!((key.params_bytes(), sample.len(), key.kernel().operands(sample).len()), (28, 28, 2));
        let without = Key::of_plain(&SCALE).built(Arch::Sm89).next().unwrap();
        assert_eq!(key.built(Arch::Sm89).count(), 2);
        for pair in key.built(Arch::Sm89) {
            assert_eq!(pair.source_digest(Arch::Sm89), without.source_digest(Arch::Sm89));
            assert_eq!(pair.entry(Arch::Sm89), without.entry(Arch::Sm89));
            assert_eq!(pair.defines(Arch::Sm89), without.defines(Arch::Sm89));
            assert_eq!(pair.options(), without.options());
        }
        // It can be simulated.
        assert_eq!((key.built(Arch::Sim).count(), BOTH.plain_kernels().len()), (2, 1));
    }

    #[test]
    fn a_header_of_another_layout_is_refused_with_the_parameter() {
        let of = |edit: fn(&mut Vec<Parameter>)| {
            let mut declared = Scale::parameters().to_vec();
            edit(&mut declared);
            compare("scale", &declared, &SCALE).unwrap_err().to_string()
        };
        let errors = [
            of(|declared| declared[1].bytes = 8),
            of(|declared| declared[2].offset = 12),
            of(|declared| declared.swap(0, 2)),
            of(|declared| declared.truncate(3)),
            of(|declared| declared.push(Parameter { name: "more", offset: 28, ..declared[3] })),
        ];
        insta::assert_snapshot!(errors.join("\n"));
        assert_eq!(compare("scale", Scale::parameters(), &SCALE), Ok(()));
    }

    #[test]
    fn a_key_of_another_name_or_with_fields_is_refused() {
        let said = |name| compare(name, Scale::parameters(), &SCALE).unwrap_err().to_string();
        insta::assert_snapshot!(["shift", "scale{wide=true}"].map(said).join("\n"));
    }

    #[test]
    fn an_operation_that_is_another_kernel_of_the_name_is_refused() {
        static ELSEWHERE: PlainUnit = PlainUnit { source: Source { path: "k/b.cu", ..UNIT.source }, ..UNIT };
        static OTHER: PlainKernel = PlainKernel { unit: &ELSEWHERE, ..SCALE };
        static KERNELS: Kernels = Kernels::new("of the test", &[Op::of::<Scale>()], &[&OTHER]);
        insta::assert_snapshot!(KERNELS.are_as_their_files().unwrap_err());
    }
}
