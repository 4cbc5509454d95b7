//! Every kernel family keeps these rules, whatever it computes.

use std::collections::BTreeSet;

use precast_kernels::check::{Case, POISON};
use precast_kernels::{Access, Arch, Batch, Dtype, Format, KERNELS, Key, KeyError, Variant, abi::dequant_params};
use proptest::prelude::*;

#[test]
fn every_operation_has_examples_of_its_own() {
    for op in KERNELS.ops {
        let examples = (op.examples)();
        assert!(!examples.is_empty(), "{} has no examples", op.name);
        assert!(examples.iter().all(|key| key.op() == op.name));
        let distinct: BTreeSet<&Key> = examples.iter().collect();
        assert_eq!(distinct.len(), examples.len(), "{} has an example twice", op.name);
    }
    assert!(KERNELS.ops.windows(2).all(|pair| pair[0].name < pair[1].name), "the registry is not alphabetical");
}

/// A dtype that examples leave out is checked by nobody, until a model launches it.
#[test]
fn examples_have_each_dtype_that_a_field_may_be() {
    let fields = |key: &Key| -> Vec<String> {
        let body = key.text().split_once('{').expect("a key has fields").1.trim_end_matches('}');
        body.split(',').map(str::to_owned).collect()
    };
    let shown: BTreeSet<(&str, String)> =
        KERNELS.examples().iter().flat_map(|key| fields(key).into_iter().map(|field| (key.op(), field))).collect();
    for key in KERNELS.examples() {
        for field in fields(&key) {
            let other = match field.split_once('=') {
                Some((name, "bf16")) => format!("{name}=f32"),
                Some((name, "f32")) => format!("{name}=bf16"),
                _ => continue,
            };
            let built = KERNELS
                .parse(&key.text().replacen(&field, &other, 1))
                .is_ok_and(|key| Arch::GPUS.iter().any(|arch| !key.kernel().variants(*arch).is_empty()));
            assert!(!built || shown.contains(&(key.op(), other.clone())), "{}: no example has {other}", key.op());
        }
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
        "rmsnorm.fwd{h=896,out=bf16,residual=false,x=bf16}",
        "rmsnorm.fwd{h=896,out=i8+bf16,residual=false,x=bf16}",
        "rmsnorm.fwd{h=896,out=,residual=false,x=bf16}",
        "rmsnorm.fwd{h=896,residual=false,x=i8}",
        "swiglu.fwd{n=,x=bf16}",
        "cast{}",
        "dequant{w=bf16,x=bf16}",
        "dequant{w=Q4_K,x=Q4_K}",
        "dequant{w=q4_k,x=bf16}",
        "dequant{w=Q3_K,x=bf16}",
    ];
    for text in malformed {
        assert_eq!(KERNELS.parse(text), Err(KeyError::Malformed(text.to_owned())));
    }
    assert!(matches!(KERNELS.parse("softmax.fwd{}"), Err(KeyError::UnknownOp { .. })));
}

/// A key that no source can be built for has no variants: no bundle holds one, and nothing selects one.
#[test]
fn what_no_kernel_computes_has_no_variants() {
    let texts = [
        "embedding.fwd{h=40,w=bf16,x=f32}",
        "embedding.fwd{h=288,w=Q4_K,x=bf16}",
        "embedding.fwd{h=33,w=Q8_0,x=bf16}",
        "embedding.fwd{h=40,w=i8,x=bf16}",
        "gemm.dgrad{w=i8,x=bf16}",
        "gemm.fwd{bias=false,residual=false,w=Q4_K,x=bf16}",
        "gemm.fwd{bias=false,residual=false,w=i8,x=bf16}",
        "gemm.fwd{bias=false,residual=false,w=Q4_K,x=Q4_K}",
        "post_norm.fwd{h=896,next=false,out=i8,x=bf16}",
        "qk_norm.row_bwd{d=128,heads=65,x=bf16}",
        "rmsnorm.bwd{h=16384,out=bf16+i8,residual=false,x=bf16}",
        "rmsnorm.bwd{h=896,out=i8,residual=false,x=bf16}",
        "rmsnorm.fwd{h=896,out=i8,residual=false,x=f32}",
        "swiglu.bwd{n=192,out=bf16+i8,x=bf16}",
        "swiglu.fwd{n=896,x=bf16}",
        "swiglu.fwd{out=i8,x=bf16}",
    ];
    for text in texts {
        let key = KERNELS.parse(text).unwrap();
        assert!(Arch::GPUS.iter().all(|arch| key.kernel().variants(*arch).is_empty()), "{key}");
    }
}

/// A grid is 31 bits wide, which is enough for matrices of more than 2^32 elements.
#[test]
fn a_matrix_of_more_elements_than_32_bits_count_has_a_grid() {
    for text in ["dequant{w=Q4_K,x=bf16}", "dequant{w=Q8_0,x=f32}"] {
        let key = KERNELS.parse(text).unwrap();
        let n = 5 << 32;
        let params = bytemuck::bytes_of(&dequant_params { n, ..Default::default() }).to_vec();
        for variant in key.kernel().variants(Arch::Sm89) {
            let geometry = key.kernel().geometry(variant, &params);
            assert!(geometry.grid[0] < 1 << 31, "{key}[{variant}]: {geometry:?}");
            let vectors = key.kernel().operands(&params)[1].bytes() / 16;
            let each = variant.numbers().find(|(name, _)| *name == "vectors").expect("a dequantizing variant").1;
            let covered = u64::from(geometry.grid[0]) * u64::from(variant.threads() * each);
            assert!(covered >= vectors, "{key}[{variant}]: {geometry:?}");
        }
    }
}

#[test]
fn operands_are_addresses_of_the_parameter_block() {
    for key in KERNELS.examples() {
        let kernel = key.kernel();
        for params in kernel.samples() {
            assert_eq!(params.len(), key.params_bytes(), "{key}");
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

/// A launch declares its scratch memory as such: no output is excused from its check.
#[test]
fn every_output_is_compared_with_its_reference() {
    for key in KERNELS.examples() {
        let kernel = key.kernel();
        for operand in kernel.samples().iter().flat_map(|params| kernel.operands(params)) {
            let tolerance = kernel.tolerance(&operand);
            let finite = tolerance.norm.is_finite() && tolerance.element.is_finite();
            assert!(finite || !operand.access.is_output(), "{key}: `{}` may be anything", operand.name);
        }
    }
}

/// Operations that sum up, or have no more than a few numbers for each token.
const SMALL: [&str; 7] =
    ["column_sum.finish", "grad_norm.finish", "head.metrics", "lora.wgrad", "moe.route", "moe.sort", "sample.advance"];

#[test]
fn a_typical_launch_fills_a_gpu_and_is_in_no_cache() {
    for key in KERNELS.examples() {
        let kernel = key.kernel();
        let params = kernel.typical(Batch { sequences: 8, seq_len: 1024 });
        let bytes: u64 = kernel.operands(&params).iter().map(|operand| operand.bytes()).sum();
        // A key may say how long rows are.
        let number = |pair: &str, name: &str| -> Option<u64> { pair.strip_prefix(name)?.parse().ok() };
        let field = |name: &str| key.text().split(['{', ',', '}']).find_map(|pair| number(pair, name));
        let of_heads = || Some(field("d=")? * field("heads=")?);
        let width = field("h=").or_else(of_heads).unwrap_or(Batch::WIDTH.into());
        let least = (50 << 20) * width / u64::from(Batch::WIDTH);
        assert!(bytes >= least || SMALL.contains(&key.op()), "{key}: its typical launch has {bytes} bytes");
        assert!(bytes < 4 << 30, "{key}: its typical launch has {bytes} bytes");
        for arch in Arch::GPUS {
            let variant = KERNELS.select(&key, &params, arch);
            let geometry = kernel.geometry(variant, &params);
            let blocks: u32 = geometry.grid.iter().product();
            assert!(kernel.admits(variant, &params), "{key}[{variant}] on {arch}");
            assert!(blocks >= 128 || SMALL.contains(&key.op()), "{key}[{variant}] on {arch}: {blocks} CTAs");
        }
    }
}

/// Every sample of each example, on each architecture.
fn launches() -> impl Iterator<Item = (Key, Arch, Vec<u8>)> {
    let keys = KERNELS.examples().into_iter().flat_map(|key| Arch::GPUS.map(|arch| (key.clone(), arch)));
    keys.flat_map(|(key, arch)| key.kernel().samples().into_iter().map(move |params| (key.clone(), arch, params)))
}

#[test]
fn what_is_selected_is_a_variant_that_admits_the_launch() {
    for (key, arch, params) in launches() {
        let (kernel, variant) = (key.kernel(), KERNELS.select(&key, &params, arch));
        assert!(kernel.variants(arch).contains(&variant) && kernel.admits(variant, &params), "{key}[{variant}]");
    }
}

#[test]
fn a_variant_reads_back_and_its_geometry_fits_its_architecture() {
    for (key, arch, params) in launches() {
        let kernel = key.kernel();
        for variant in kernel.variants(arch) {
            let numbers: Vec<_> = variant.numbers().collect();
            assert!(numbers.windows(2).all(|pair| pair[0].0 < pair[1].0), "{key}[{variant}] is not alphabetical");
            assert_eq!(Variant::new(&numbers), variant);
            // The typed value is read back here.
            let geometry = kernel.geometry(variant, &params);
            assert_eq!(geometry.block[0], variant.threads(), "{key}[{variant}]");
            if kernel.admits(variant, &params) {
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
    for key in KERNELS.examples() {
        for arch in Arch::GPUS {
            for pair in key.built(arch) {
                let (symbol, digest) = (pair.entry(arch), pair.source_digest(arch));
                assert!(symbol.ends_with(&format!("__{}", &digest.to_string()[..16])), "{symbol}");
                let defines = pair.defines(arch);
                assert_eq!(defines.last(), Some(&("ENTRY".to_owned(), symbol.clone())));
                assert!(symbols.insert(symbol.clone()), "{symbol} is not unique");
            }
        }
    }
    // Nothing of the simulated GPU is made from a source.
    let [bf16, f32] = ["bf16", "f32"].map(|x| KERNELS.parse(&format!("swiglu.fwd{{x={x}}}")).unwrap());
    let simulated = |key: &Key| key.built(Arch::Sim).next().unwrap().source_digest(Arch::Sim);
    assert_ne!(simulated(&bf16), simulated(&f32));
}

/// True if an element still holds the poison. Of integers that is a value.
fn poisoned(format: Format, bytes: &[u8]) -> bool {
    let is_value = format == Dtype::I8 || format == Dtype::U32;
    !is_value && bytes.chunks(format.bytes(1) as usize).any(|element| element.iter().all(|byte| *byte == POISON))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn references_write_all_of_their_outputs_twice_the_same(seed in any::<u64>()) {
        for key in KERNELS.examples() {
            for params in key.kernel().samples() {
                let case = Case::new(&key, &params, seed);
                let (after, again) = (case.reference(), case.reference());
                for (operand, (before, (after,
                    again))) in case.operands.iter().zip(case.before.iter().zip(after.iter().zip(&again))) {
                    match operand.access {
                        Access::Read | Access::Scratch => prop_assert!(before[..] == after[..], "{}: {} changed", key,
                            operand.name),
                        Access::Write | Access::WritePart | Access::ReadWrite => {
                            prop_assert!(!poisoned(operand.format, after), "{}: {} is not whole", key, operand.name);
                        }
                    }
                    prop_assert!(operand.access == Access::Scratch || after[..] == again[..], "{}: {} is other \
                        bits", key, operand.name);
                }
            }
        }
    }

    /// A reference must notice a wrong kernel: changing its largest output by a few percent is a mismatch.
    #[test]
    fn a_wrong_output_is_a_mismatch(seed in any::<u64>()) {
        for key in KERNELS.examples() {
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
                    Format::Dense(Dtype::I8) => f32::from(element[0] as i8),
                    _ => f32::from_le_bytes([element[0], element[1], element[2], element[3]]),
                };
                let largest = after.chunks(width).enumerate().max_by(|a, b|
                    value(a.1).abs().total_cmp(&value(b.1).abs()));
                let (index, element) = largest.unwrap();
                if value(element).abs() < 1e-3 {
                    continue;
                }
                let mut wrong = after.clone();
                // The exponent's lowest bit: the value doubles or halves. Of an integer, the sign.
                let byte = if operand.format == Dtype::F32 { 2 } else { 0 };
                wrong[index * width + byte] ^= 0x80;
                prop_assert!(case.compare(operand, &wrong, after).is_err(), "{}: {}", key, operand.name);
            }
        }
    }
}
