use crate::host::Views;

pub(super) fn cast(views: &mut Views<'_>) {
    let x = views.load("x");
    views.store("y").copy_from_slice(&x);
}
