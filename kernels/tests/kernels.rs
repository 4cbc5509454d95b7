//! What must hold of every kernel family, whatever it computes.

use std::collections::BTreeSet;

use precast_kernels::check::{Case, POISON};
use precast_kernels::{Access, Arch, Dtype, Format, Key, KeyError, OPS, Variant};
use proptest::prelude::*;

/// A key of every operation, both dtypes and every flag where there are some.
fn keys() -> Vec<Key> {
    let texts = [
        "adamw.update{w=bf16}",
        "adamw.update{w=f32}",
        "attention.bwd{d=64,x=bf16}",
        "attention.bwd{d=48,x=f32}",
        "attention.delta{d=80,x=bf16}",
        "attention.delta{d=16,x=f32}",
        "attention.fwd{d=128,x=bf16}",
        "attention.fwd{d=32,x=f32}",
        "cast{from=bf16,to=f32}",
        "cast{from=f32,to=bf16}",
        "column_sum.finish{}",
        "column_sum.partial{x=bf16}",
        "column_sum.partial{x=f32}",
        "embedding.bwd{h=7,x=bf16}",
        "embedding.bwd{h=40,x=f32}",
        "embedding.fwd{h=33,x=bf16}",
        "embedding.fwd{h=4,x=f32}",
        "fill{first=false}",
        "fill{first=true}",
        "gemm.dgrad{w=bf16,x=bf16}",
        "gemm.dgrad{w=f32,x=f32}",
        "gemm.fwd{bias=false,residual=true,w=bf16,x=bf16}",
        "gemm.fwd{bias=true,residual=false,w=f32,x=f32}",
        "gemm.fwd{bias=true,residual=true,w=bf16,x=bf16}",
        "gemm.swiglu{bias=false,w=bf16,x=bf16}",
        "gemm.swiglu{bias=true,w=f32,x=f32}",
        "gemm.wgrad{x=bf16}",
        "gemm.wgrad{x=f32}",
        "grad_norm.finish{}",
        "grad_norm.partial{}",
        "head.distill{x=bf16}",
        "head.distill{x=f32}",
        "head.metrics{}",
        "head.nll{x=bf16}",
        "head.nll{x=f32}",
        "rmsnorm.bwd{h=40,residual=false,x=bf16}",
        "rmsnorm.bwd{h=300,residual=true,x=f32}",
        "rmsnorm.fwd{h=33,residual=true,x=bf16}",
        "rmsnorm.fwd{h=1100,residual=false,x=f32}",
        "rope.bwd{d=16,x=bf16}",
        "rope.bwd{d=32,x=f32}",
        "rope.fwd{d=48,x=bf16}",
        "rope.fwd{d=64,x=f32}",
        "swiglu.bwd{x=bf16}",
        "swiglu.bwd{x=f32}",
        "swiglu.fwd{x=bf16}",
        "swiglu.fwd{x=f32}",
    ];
    texts.map(|text| Key::parse(text).unwrap()).into()
}

#[test]
fn the_list_above_has_every_operation() {
    let listed: BTreeSet<&str> = keys().iter().map(|key| key.kernel().op()).collect();
    let all: BTreeSet<&str> = OPS.iter().map(|op| op.name).collect();
    assert_eq!(listed, all);
    assert!(OPS.windows(2).all(|pair| pair[0].name < pair[1].name), "the registry is not alphabetical");
}

#[test]
fn keys_print_as_they_parse_with_their_fields_in_order() {
    for key in keys() {
        let body = key.text().split_once('{').unwrap().1.trim_end_matches('}');
        let names: Vec<&str> = body.split(',').filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{key}");
    }
}

#[test]
fn what_is_not_exactly_a_key_is_refused() {
    let malformed = [
        "rmsnorm.fwd",
        "rmsnorm.fwd{h=896,x=bf16}",
        "rmsnorm.fwd{h=896,residual=false,x=bf16,y=f32}",
        "rmsnorm.fwd{residual=false,h=896,x=bf16}",
        "rmsnorm.fwd{h=0896,residual=false,x=bf16}",
        "rmsnorm.fwd{h=+896,residual=false,x=bf16}",
        "rmsnorm.fwd{h=896,residual=0,x=bf16}",
        "rmsnorm.fwd{h=896,residual=false,x=u32}",
        "rmsnorm.fwd{h=896,residual=false,x=bf16} ",
        "cast{}",
    ];
    for text in malformed {
        assert_eq!(Key::parse(text), Err(KeyError::Malformed(text.to_owned())));
    }
    assert!(matches!(Key::parse("softmax.fwd{}"), Err(KeyError::UnknownOp { .. })));
}

#[test]
fn sources_say_what_is_special_in_three_lines_and_include_what_they_need() {
    let variants = |key: &Key| -> BTreeSet<Variant> {
        Arch::GPUS.iter().flat_map(|arch| key.kernel().variants(*arch)).copied().collect()
    };
    for (key, variant) in keys().into_iter().flat_map(|key| variants(&key).into_iter().map(move |v| (key.clone(), v))) {
        let source = key.kernel().source(variant);
        let header = source.text.lines().take_while(|line| line.starts_with("//")).count();
        // A source that is one line of another file's code points there.
        let pointer = source.text.contains("See rotate.cuh") || source.text.contains("see rotate.cuh");
        assert!(header >= 3 || pointer, "{}: {header} lines", source.path);
        let names: Vec<&str> = source.includes().iter().map(|header| header.0).collect();
        assert!(names.contains(&"device.cuh") && names.contains(&"types.h"), "{}: {names:?}", source.path);
    }
}

#[test]
fn operands_are_addresses_of_the_parameter_block() {
    for key in keys() {
        let kernel = key.kernel();
        for params in kernel.samples() {
            assert_eq!(params.len(), kernel.params_size(), "{key}");
            let operands = kernel.operands(&params);
            let offsets: BTreeSet<usize> = operands.iter().map(|operand| operand.offset).collect();
            assert_eq!(offsets.len(), operands.len(), "{key}: two operands share a field");
            for operand in operands {
                assert!(operand.offset.is_multiple_of(8) && operand.offset + 8 <= params.len(), "{key}");
                assert!(operand.elems > 0, "{key}: `{}` is empty in a sample", operand.name);
            }
        }
    }
}

/// What a launch works in is declared as that: no output is excused from its check.
#[test]
fn every_output_is_compared_with_its_reference() {
    for key in keys() {
        let kernel = key.kernel();
        for operand in kernel.samples().iter().flat_map(|params| kernel.operands(params)) {
            let tolerance = kernel.tolerance(&operand);
            let finite = tolerance.norm.is_finite() && tolerance.element.is_finite();
            assert!(finite || !operand.access.is_output(), "{key}: `{}` may be anything", operand.name);
        }
    }
}

#[test]
fn what_is_selected_is_a_variant_that_admits_the_launch() {
    for key in keys() {
        let kernel = key.kernel();
        for (arch, params) in Arch::GPUS.iter().flat_map(|arch| kernel.samples().into_iter().map(move |p| (*arch, p))) {
            let variant = key.select(&params, arch);
            assert!(kernel.variants(arch).contains(&variant) && kernel.admits(variant, &params), "{key}[{variant}]");
        }
    }
}

#[test]
fn geometry_fits_every_architecture() {
    for key in keys() {
        let kernel = key.kernel();
        for arch in Arch::GPUS {
            let launches = kernel.samples();
            let pairs = launches.iter().flat_map(|params| kernel.variants(arch).iter().map(move |v| (params, v)));
            for (params, variant) in pairs.filter(|(params, variant)| kernel.admits(**variant, params)) {
                let geometry = kernel.geometry(*variant, params);
                assert_eq!(geometry.block.iter().product::<u32>(), variant.threads(), "{key}");
                assert!(geometry.grid.iter().all(|blocks| *blocks > 0), "{key}");
                assert!(geometry.shared_bytes <= arch.shared_bytes_per_block(), "{key}[{variant}] on {arch}");
            }
        }
    }
}

#[test]
fn an_entry_symbol_says_what_the_code_is_made_from() {
    let mut symbols = BTreeSet::new();
    for key in keys() {
        for arch in Arch::GPUS {
            for variant in key.kernel().variants(arch) {
                let (symbol, digest) = (key.kernel().entry(*variant, arch), key.kernel().source_digest(*variant, arch));
                assert!(symbol.ends_with(&format!("__{}", &digest.to_string()[..16])), "{symbol}");
                let defines = key.kernel().defines(*variant, arch);
                assert_eq!(defines.last(), Some(&("ENTRY".to_owned(), symbol.clone())));
                assert!(symbols.insert(symbol.clone()), "{symbol} is not unique");
            }
        }
    }
    // Nothing of the simulated GPU is made from a source.
    let [bf16, f32] = ["bf16", "f32"].map(|x| Key::parse(&format!("swiglu.fwd{{x={x}}}")).unwrap());
    let simulated = |key: &Key| key.kernel().source_digest(key.kernel().variants(Arch::Sim)[0], Arch::Sim);
    assert_ne!(simulated(&bf16), simulated(&f32));
}

/// Whether an element still holds the poison.
fn poisoned(format: Format, bytes: &[u8]) -> bool {
    bytes.chunks(format.bytes(1) as usize).any(|element| element.iter().all(|byte| *byte == POISON))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn references_write_every_element_of_what_they_write_and_nothing_else(seed in any::<u64>()) {
        for key in keys() {
            for params in key.kernel().samples() {
                let case = Case::new(&key, &params, seed);
                let after = case.reference();
                for ((operand, before), after) in case.operands.iter().zip(&case.before).zip(&after) {
                    match operand.access {
                        Access::Read | Access::Scratch => prop_assert!(before[..] == after[..], "{}: {} changed", key, operand.name),
                        Access::Write | Access::ReadWrite => {
                            prop_assert!(!poisoned(operand.format, after), "{}: {} is not whole", key, operand.name);
                        }
                    }
                    let whole = case.compare(operand, after, after);
                    prop_assert!(whole.is_ok());
                }
            }
        }
    }

    /// A reference must notice a wrong kernel: changing its largest output by a few percent is a mismatch.
    #[test]
    fn a_wrong_output_is_a_mismatch(seed in any::<u64>()) {
        for key in keys() {
            let params = key.kernel().samples().pop().unwrap();
            let case = Case::new(&key, &params, seed);
            let after = case.reference();
            for (operand, after) in case.operands.iter().zip(&after) {
                if !operand.access.is_output() || operand.format == Dtype::U32 {
                    continue;
                }
                let width = operand.format.bytes(1) as usize;
                let value = |element: &[u8]| match operand.format {
                    Format::Dense(Dtype::Bf16) => half::bf16::from_le_bytes([element[0], element[1]]).to_f32(),
                    _ => f32::from_le_bytes([element[0], element[1], element[2], element[3]]),
                };
                let largest = after.chunks(width).enumerate().max_by(|a, b| value(a.1).abs().total_cmp(&value(b.1).abs()));
                let (index, element) = largest.unwrap();
                if value(element).abs() < 1e-3 {
                    continue;
                }
                let mut wrong = after.clone();
                // The exponent's lowest bit: the value doubles or halves.
                let byte = if operand.format == Dtype::Bf16 { 0 } else { 2 };
                wrong[index * width + byte] ^= 0x80;
                prop_assert!(case.compare(operand, &wrong, after).is_err(), "{}: {}", key, operand.name);
            }
        }
    }
}
