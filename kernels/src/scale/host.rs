use crate::host::Views;

pub(super) fn scale(factor: f32, has_residual: bool, views: &mut Views<'_>) {
    let x = views.load("x");
    let residual = has_residual.then(|| views.load("residual"));
    let scaled = x.iter().enumerate().map(|(i, x)| match &residual {
        Some(residual) => factor.mul_add(*x, residual[i]),
        None => factor * x,
    });
    let scaled: Vec<f32> = scaled.collect();
    views.store("y").copy_from_slice(&scaled);
}
