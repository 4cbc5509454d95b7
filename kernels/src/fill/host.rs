use super::Fill;
use crate::abi::{fill_params, micro_scalars};
use crate::host::Views;

pub(super) fn fill(key: Fill, p: &fill_params, views: &mut Views<'_>) {
    if !key.first || views.read::<micro_scalars>("micro")[0].accumulate == 0 {
        views.write::<f32>("y").fill(p.value);
    }
}
