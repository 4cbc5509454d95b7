//! Host references.

use rayon::prelude::*;

use super::{
    EXPERT_TILE, MoeCombine, MoePermute, MoeRoute, MoeSort, ROUTE_GROUP, moe_combine_params, moe_permute_params,
    moe_route_params, moe_sort_params,
};
use crate::host::{Views, sigmoid};

/// Returns the experts of a token, by decreasing logit, of equals the lower; NaN last.
fn choose(logits: &[f32], chosen: usize) -> Vec<usize> {
    let mut experts: Vec<usize> = (0..logits.len()).collect();
    // A stable sort keeps the lower of equals first; zeros of both signs are equal.
    experts.sort_by(|a, b| {
        let [a, b] = [logits[*a], logits[*b]];
        b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    });
    experts.truncate(chosen);
    experts
}

pub(super) fn route(key: MoeRoute, p: &moe_route_params, views: &mut Views<'_>) {
    let (chosen, experts) = (key.chosen as usize, key.experts as usize);
    let (count, matrices) = (chosen + usize::from(key.shared), experts + usize::from(key.shared));
    let logits = views.load("logits");
    let (choices, weights) = (views.write::<u32>("choices"), views.write::<f32>("weights"));
    let rows = logits.par_chunks(p.columns as usize).zip(choices.par_chunks_mut(count));
    rows.zip(weights.par_chunks_mut(count)).for_each(|((logits, choices), weights)| {
        let of_experts = &logits[..experts];
        let order = choose(of_experts, chosen);
        let top = of_experts[order[0]];
        let exponential = |expert: usize| f64::from(of_experts[expert] - top).exp();
        let all: f64 = (0..experts).map(exponential).sum();
        let sum = if key.normalize { order.iter().map(|expert| exponential(*expert)).sum() } else { all };
        for ((choice, weight), expert) in choices.iter_mut().zip(&mut *weights).zip(order) {
            *choice = expert as u32;
            *weight = if all.is_nan() { f32::NAN } else { (exponential(expert) / sum) as f32 };
        }
        if key.shared {
            (choices[chosen], weights[chosen]) = (key.experts, sigmoid(logits[experts]));
        }
    });
    let (ranks, counts) = (views.write::<u32>("ranks"), views.write::<u32>("counts"));
    let group = ROUTE_GROUP as usize * count;
    let groups = choices.chunks(group).zip(ranks.chunks_mut(group)).zip(counts.chunks_mut(matrices));
    for ((choices, ranks), counts) in groups {
        counts.fill(0);
        for (choice, rank) in choices.iter().zip(ranks) {
            let count = &mut counts[*choice as usize];
            *rank = *count;
            *count += 1;
        }
    }
}

pub(super) fn sort(key: MoeSort, p: &moe_sort_params, views: &mut Views<'_>) {
    let choices_of_token = (key.chosen + u32::from(key.shared)) as usize;
    let matrices = key.experts_and_shared() as usize;
    let (choices, ranks) = (views.read::<u32>("choices"), views.read::<u32>("ranks"));
    let counts = views.read::<u32>("counts");
    let (places, tiles) = (views.write::<u32>("places"), views.write::<u32>("tiles"));
    tiles.fill(0);
    let mut start = 0;
    let mut starts = vec![vec![0u32; matrices]; counts.len() / matrices];
    let lists = tiles.chunks_mut(4 * p.list as usize);
    let mut lists = lists.map(|list| list.split_first_chunk_mut::<4>().expect("the number of its tiles"));
    let mut list = lists.next();
    for expert in 0..matrices {
        let each = p.each as usize;
        if expert > 0 && expert.is_multiple_of(each) {
            list = lists.next();
        }
        let ([count, ..], tiles) = list.as_mut().expect("a list for each of so many experts");
        let mut end = start;
        for (group, counts) in counts.chunks(matrices).enumerate() {
            starts[group][expert] = end;
            end += counts[expert];
        }
        for first in (start..end).step_by(EXPERT_TILE as usize) {
            let Some(entry) = tiles.chunks_exact_mut(4).nth(*count as usize) else { break };
            entry.copy_from_slice(&[(expert % each) as u32, first, end.min(first + EXPERT_TILE), 0]);
            *count += 1;
        }
        start = end;
    }
    for (index, place) in places.iter_mut().enumerate() {
        let group = index / choices_of_token / ROUTE_GROUP as usize;
        *place = starts[group][choices[index] as usize] + ranks[index];
    }
}

pub(super) fn permute(key: MoePermute, p: &moe_permute_params, views: &mut Views<'_>) {
    let row = key.x.bytes(p.h.into()) as usize;
    let (x, places) = (views.read::<u8>("x"), views.read::<u32>("places"));
    let y = views.write::<u8>("y");
    let choices = p.choices as usize;
    for (index, place) in places.iter().enumerate() {
        let token = index / choices;
        y[*place as usize * row..][..row].copy_from_slice(&x[token * row..][..row]);
    }
    if key.x == crate::Dtype::I8 {
        let (scales, y_scales) = (views.read::<f32>("x_scale"), views.write::<f32>("y_scale"));
        places.iter().enumerate().for_each(|(index, place)| y_scales[*place as usize] = scales[index / choices]);
    }
}

pub(super) fn combine(key: MoeCombine, p: &moe_combine_params, views: &mut Views<'_>) {
    let (h, choices) = (p.h as usize, key.choices as usize);
    let (y, residual) = (views.load("y"), views.load("residual"));
    let (places, weights) = (views.read::<u32>("places"), views.read::<f32>("weights"));
    let mut out = views.store("out");
    let tokens = out.par_chunks_mut(h).zip(residual.par_chunks(h));
    let of_tokens = places.par_chunks(choices).zip(weights.par_chunks(choices));
    tokens.zip(of_tokens).for_each(|((out, residual), (places, weights))| {
        out.fill(0.0);
        for (place, weight) in places.iter().zip(weights) {
            let row = &y[*place as usize * h..][..h];
            out.iter_mut().zip(row).for_each(|(sum, y)| *sum = weight.mul_add(*y, *sum));
        }
        out.iter_mut().zip(residual).for_each(|(sum, residual)| *sum += residual);
    });
}
