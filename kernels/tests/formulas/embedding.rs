use precast_kernels::abi::embedding_bwd_params;

use super::launch::Launch;

pub fn fwd(launch: &mut Launch) {
    let (h, table) = (launch.size("h"), launch.before("table"));
    let rows = launch.before("ids").into_iter().flat_map(|id| table[id as usize * h..][..h].to_vec());
    launch.is("y", &rows.collect::<Vec<_>>());
}

pub fn bwd(launch: &mut Launch) {
    let (h, dy, mut dtable) = (launch.size("h"), launch.before("dy"), launch.before("dtable"));
    let embedding_bwd_params { padding, .. } = launch.params();
    for (id, row) in launch.before("sorted_ids").into_iter().zip(launch.before("sorted_positions")) {
        if launch.goes("padding", id == f64::from(padding)) {
            continue;
        }
        let gradient = &dy[row as usize * h..][..h];
        dtable[id as usize * h..][..h].iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient);
    }
    launch.is("dtable", &dtable);
}
