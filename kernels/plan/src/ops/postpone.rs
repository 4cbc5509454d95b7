//! Orders a backward pass so that the exchange of the gradient that is complete last is hidden.

use precast_core::Access;
use precast_core::plan::{Node, Tensor, Touch};

/// Returns the last node that writes to a tensor.
pub(super) fn last_write(nodes: &[Node], to: Tensor) -> Option<usize> {
    nodes.iter().rposition(|node| written(&node.touches(), to) > 0)
}

/// Part of the gradient that is complete last. On H100 and 8,192 tokens GEMMs write half of its bytes in the time that
/// NVLink takes for all of them.
const OF_LAST: u64 = 2;
/// Part of all other gradients: most of them are to leave early.
const OF_OTHERS: u64 = 4;

/// Moves launches behind the last one that writes to `last`, the gradient of the embedding table, so that its exchange
/// begins earlier, and they hide it: the latest of those that write gradients and nothing that is read, up to a part of
/// its bytes and of all others'.
pub(super) fn postpone(nodes: Vec<Node>, grad: Tensor, last: Tensor) -> Vec<Node> {
    let Some(at) = last_write(&nodes, last) else { return nodes };
    let touched: Vec<Vec<Touch>> = nodes[..=at].iter().map(Node::touches).collect();
    let mut kept = vec![at];
    let (mut moved, mut bytes) = (vec![false; nodes.len()], 0);
    let enough = (last.bytes() / OF_LAST).min((grad.bytes() - last.bytes()) / OF_OTHERS);
    for index in (0..at).rev() {
        let own = written(&touched[index], grad);
        if own == 0 || bytes >= enough || kept.iter().any(|later| conflict(&touched[index], &touched[*later])) {
            kept.push(index);
        } else {
            moved[index] = true;
            bytes += own;
        }
    }
    let mut is_behind = moved.iter().enumerate().map(|(index, moved)| *moved || index > at);
    let (behind, mut all): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(|_| is_behind.next() == Some(true));
    all.extend(behind);
    all
}

/// Returns the bytes of a tensor that are in ranges that a node writes.
fn written(touches: &[Touch], tensor: Tensor) -> u64 {
    let Tensor { buffer, offset, .. } = tensor;
    let all = Touch { name: "", access: Access::Read, buffer, offset, bytes: tensor.bytes() };
    touches.iter().filter(|touch| touch.access.writes()).map(|touch| shared_bytes(touch, &all)).sum()
}

/// True if the order of two nodes may matter: they touch the same bytes, and one writes.
fn conflict(a: &[Touch], b: &[Touch]) -> bool {
    let clash = |a: &Touch, b: &Touch| shared_bytes(a, b) > 0 && (a.access.writes() || b.access.writes());
    a.iter().any(|a| b.iter().any(|b| clash(a, b)))
}

fn shared_bytes(a: &Touch, b: &Touch) -> u64 {
    let end = (a.offset + a.bytes).min(b.offset + b.bytes);
    if a.buffer == b.buffer { end.saturating_sub(a.offset.max(b.offset)) } else { 0 }
}
