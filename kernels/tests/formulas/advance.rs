use precast_kernels::abi::{IDLE_SLOT, NO_TOKEN, sample_advance_params};

use super::launch::Launch;

/// A row with a slot goes to the token that was drawn, which is kept at its place, and is idle once its sequence ends
/// there.
pub fn advance(launch: &mut Launch) {
    let sample_advance_params { rows, seq_len, .. } = launch.params();
    let [drawn, log_prob, lse, stops] = ["token", "log_prob", "lse", "stop"].map(|name| launch.before(name));
    let names = ["slot", "position", "id", "end", "tokens", "log_probs", "lses"];
    let [mut slot, mut position, mut id, mut end, mut tokens, mut log_probs, mut lses] =
        names.map(|name| launch.before(name));
    for row in 0..rows as usize {
        if launch.goes("idle", slot[row] == f64::from(IDLE_SLOT)) {
            continue;
        }
        let of_slot = slot[row] as usize * seq_len as usize;
        if launch.goes("drawn", drawn[row] == f64::from(NO_TOKEN)) {
            (slot[row], end[row]) = (f64::from(IDLE_SLOT), f64::from(NO_TOKEN));
            continue;
        }
        let next = position[row] + 1.0;
        let is_stop = launch.goes("stop", stops.contains(&drawn[row]));
        if launch.goes("end", next + 1.0 >= end[row]) || is_stop {
            slot[row] = f64::from(IDLE_SLOT);
        }
        if launch.goes("full", next >= f64::from(seq_len)) {
            continue;
        }
        (position[row], id[row]) = (next, drawn[row]);
        let place = of_slot + next as usize;
        (tokens[place], log_probs[place], lses[place]) = (drawn[row], log_prob[row], lse[row]);
    }
    for (name, values) in names.into_iter().zip([slot, position, id, end, tokens, log_probs, lses]) {
        launch.is(name, &values);
    }
}
