use crate::abi::{
    lora_dgrad_a_params, lora_dgrad_b_params, lora_fwd_a_params, lora_fwd_b_params, lora_part, lora_wgrad_params,
    micro_scalars,
};
use crate::host::{Matrix, Output, Threads, Views, matmul};

/// Views the columns of part `index` of a matrix whose parts have equally many.
fn columns_of(data: &[f32], index: usize, rows: usize, columns: usize, parts: usize) -> Matrix<'_> {
    Matrix::rows(&data[index * columns..], rows, columns, parts * columns)
}

/// Views a part's columns of the stack.
fn stack_of<'a>(data: &'a [f32], part: &lora_part, rows: usize, stride: usize) -> Matrix<'a> {
    Matrix::rows(&data[part.start as usize..], rows, part.width as usize, stride)
}

/// Views a part's rows of b.
fn b_of<'a>(b: &'a [f32], part: &lora_part, rank: usize) -> Matrix<'a> {
    Matrix::rows(&b[part.row as usize * rank..], part.width as usize, rank, rank)
}

pub(super) fn fwd_a(p: &lora_fwd_a_params, views: &mut Views<'_>) {
    let (m, k, rank, columns) = (p.m as usize, p.k as usize, p.rank as usize, (p.parts * p.rank) as usize);
    let x = views.load("x");
    let a = views.load("a");
    let mut t = views.store("t");
    matmul(
        &mut t,
        columns,
        Matrix::rows(&x, m, k, k),
        Matrix::rows(&a, columns, k, k).t(),
        Output::Overwrite,
        Threads::All,
    );
    for row in t.chunks_mut(columns) {
        for (t, part) in row.chunks_mut(rank).zip(&p.part) {
            t.iter_mut().for_each(|t| *t *= part.scale);
        }
    }
}

pub(super) fn fwd_b(p: &lora_fwd_b_params, views: &mut Views<'_>) {
    let (m, n, rank, parts) = (p.m as usize, p.n as usize, p.rank as usize, p.parts as usize);
    let t = views.load("t");
    let b = views.load("b");
    let mut y = views.store("y");
    for (index, part) in p.part[..parts].iter().enumerate() {
        let t = columns_of(&t, index, m, rank, parts);
        matmul(&mut y[part.start as usize..], n, t, b_of(&b, part, rank).t(), Output::Accumulate, Threads::All);
    }
}

pub(super) fn dgrad_b(p: &lora_dgrad_b_params, views: &mut Views<'_>) {
    let (m, n, rank, parts) = (p.m as usize, p.n as usize, p.rank as usize, p.parts as usize);
    let dy = views.load("dy");
    let b = views.load("b");
    let mut dt = views.store("dt");
    for (index, part) in p.part[..parts].iter().enumerate() {
        let dy = stack_of(&dy, part, m, n);
        matmul(&mut dt[index * rank..], parts * rank, dy, b_of(&b, part, rank), Output::Overwrite, Threads::All);
        for row in dt.chunks_mut(parts * rank) {
            row[index * rank..][..rank].iter_mut().for_each(|dt| *dt *= part.scale);
        }
    }
}

pub(super) fn dgrad_a(p: &lora_dgrad_a_params, views: &mut Views<'_>) {
    let (m, k, rank) = (p.m as usize, p.k as usize, p.rank as usize);
    let dt = views.load("dt");
    let a = views.load("a");
    let mut dx = views.store("dx");
    matmul(
        &mut dx,
        k,
        Matrix::rows(&dt, m, rank, rank),
        Matrix::rows(&a, rank, k, k),
        Output::Accumulate,
        Threads::All,
    );
}

/// Tokens per slice: ranges of tokens are whole slices.
const SLICE: usize = 32;

pub(super) fn wgrad(p: &lora_wgrad_params, views: &mut Views<'_>) {
    let (m, n, columns, parts) = (p.m as usize, p.n as usize, p.columns as usize, p.parts as usize);
    let splits = p.splits as usize;
    let dy = views.load("dy");
    let x = views.load("x");
    let direct = splits == 1;
    let output = if direct && views.read::<micro_scalars>("micro")[0].accumulate != 0 {
        Output::Accumulate
    } else {
        Output::Overwrite
    };
    let out = views.write::<f32>(if direct { "dw" } else { "partial" });
    let rows: usize = p.part[..parts].iter().map(|part| part.width as usize).sum();
    for split in 0..splits {
        let [begin, end] = [split, split + 1].map(|at| (m.div_ceil(SLICE) * at / splits * SLICE).min(m));
        let (dy, x) = (&dy[begin * n..], &x[begin * parts * columns..]);
        let out = &mut out[split * rows * columns..][..rows * columns];
        for (index, part) in p.part[..parts].iter().enumerate() {
            let dy = stack_of(dy, part, end - begin, n);
            let x = columns_of(x, index, end - begin, columns, parts);
            matmul(&mut out[part.row as usize * columns..], columns, dy.t(), x, output, Threads::All);
        }
    }
}
