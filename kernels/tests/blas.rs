//! A BLAS library is told to compute the GEMM of the kernel: column-major matrices, read element by element.

use half::bf16;
use precast_kernels::{Addend, BlasGemm, Dtype, KERNELS, abi::micro_scalars, blas::Matrix, check::Case, host::Buffer};

/// Operand `index` is here.
fn address(index: usize) -> u64 {
    (index as u64 + 1) << 40
}

/// Operands in memory, as a library finds them.
struct Memory<'a>(&'a [Buffer]);

impl Memory<'_> {
    fn get(&self, address: u64, dtype: Dtype, index: usize) -> f64 {
        assert_eq!(address & ((1 << 40) - 1), 0, "an operand begins where its matrix does");
        let bytes = &self.0[(address >> 40) as usize - 1];
        match dtype {
            Dtype::Bf16 => bytemuck::cast_slice::<u8, bf16>(bytes)[index].to_f64(),
            Dtype::F32 => bytemuck::cast_slice::<u8, f32>(bytes)[index].into(),
            Dtype::U32 | Dtype::I8 => unreachable!("no GEMM is of {dtype}"),
        }
    }

    /// Element (row, column) of a matrix or of its transpose.
    fn element(&self, matrix: Matrix, transposed: bool, row: u32, column: u32) -> f64 {
        let (row, column) = if transposed { (column, row) } else { (row, column) };
        assert!(row < matrix.rows && column < matrix.columns, "({row}, {column}) of {matrix:?}");
        self.get(matrix.address, matrix.dtype, column as usize * matrix.rows as usize + row as usize)
    }
}

/// The result of a GEMM, f32, in the order of its memory.
fn multiplied(gemm: &BlasGemm, memory: &Memory<'_>, accumulate: bool) -> Vec<f32> {
    let BlasGemm { a, a_transposed, b, b_transposed, d, bias, addend } = *gemm;
    let depth = if a_transposed { a.rows } else { a.columns };
    let mut result = Vec::new();
    for column in 0..d.columns {
        for row in 0..d.rows {
            let terms = (0..depth)
                .map(|at| memory.element(a, a_transposed, row, at) * memory.element(b, b_transposed, at, column));
            let index = column as usize * d.rows as usize + row as usize;
            let bias = bias.map_or(0.0, |bias| memory.get(bias, d.dtype, row as usize));
            let added = match addend {
                Addend::Matrix(address) => memory.get(address, d.dtype, index),
                Addend::Accumulated(_) if accumulate => memory.get(d.address, d.dtype, index),
                Addend::Accumulated(_) | Addend::Nothing => 0.0,
            };
            result.push((terms.sum::<f64>() + bias + added) as f32);
        }
    }
    result
}

#[test]
fn gemms_are_what_their_kernels_compute() {
    let mut ops = Vec::new();
    for key in KERNELS.examples() {
        let kernel = key.kernel();
        for (sample, mut params) in kernel.samples().into_iter().enumerate() {
            let operands = kernel.operands(&params);
            for (index, operand) in operands.iter().enumerate() {
                params[operand.offset..operand.offset + 8].copy_from_slice(&address(index).to_ne_bytes());
            }
            let Some(gemm) = kernel.blas_gemm(&params) else { continue };
            if u64::from(gemm.a.rows) * u64::from(gemm.a.columns) > 20_000 {
                continue;
            }
            ops.push(key.op());
            let case = Case::new(&key, &params, sample as u64);
            let named = |name: &str| operands.iter().position(|operand| operand.name == name);
            let micro = named("micro").map(|index| bytemuck::pod_read_unaligned::<micro_scalars>(&case.before[index]));
            let accumulate = micro.is_some_and(|micro| micro.accumulate != 0);
            let result = multiplied(&gemm, &Memory(&case.before), accumulate);
            let output = operands.iter().enumerate().find(|(index, _)| address(*index) == gemm.d.address);
            let (index, operand) = output.expect("the result is an operand");
            let bytes: Vec<u8> = match gemm.d.dtype {
                Dtype::Bf16 => {
                    bytemuck::pod_collect_to_vec(&result.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>())
                }
                _ => bytemuck::pod_collect_to_vec(&result),
            };
            case.compare(operand, &bytes, &case.reference()[index])
                .unwrap_or_else(|wrong| panic!("{params:?}: {wrong}"));
        }
    }
    ops.dedup();
    // With and without a bias and a residual, in either dtype.
    assert_eq!(ops, ["gemm.dgrad", "gemm.fwd", "gemm.wgrad"]);
}
