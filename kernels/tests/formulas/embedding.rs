use precast_kernels::Key;
use precast_kernels::abi::{embedding_bwd_params, embedding_fwd_params};

use super::launch::{Launch, size};

pub fn fwd(key: &Key) {
    let h = size(key, "h");
    let launch = Launch::new(key, embedding_fwd_params { tokens: 37, vocab: 11, ..Default::default() });
    let table = launch.before("table");
    let rows = launch.before("ids").into_iter().flat_map(|id| table[id as usize * h..][..h].to_vec());
    launch.is("y", &rows.collect::<Vec<_>>());
}

pub fn bwd(key: &Key) {
    let h = size(key, "h");
    let launch = Launch::new(key, embedding_bwd_params { tokens: 37, vocab: 11, ..Default::default() });
    let (dy, mut dtable) = (launch.before("dy"), launch.before("dtable"));
    for (id, row) in launch.before("sorted_ids").into_iter().zip(launch.before("sorted_positions")) {
        let gradient = &dy[row as usize * h..][..h];
        dtable[id as usize * h..][..h].iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient);
    }
    launch.is("dtable", &dtable);
}
