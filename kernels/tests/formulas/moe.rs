use precast_kernels::abi::{
    EXPERT_TILE, ROUTE_GROUP, moe_combine_params, moe_permute_params, moe_route_params, moe_sort_params,
};

use super::calculus::{log_sum_exp, sigmoid};
use super::launch::Launch;

/// The shared expert, as a number: 0 or 1 of them.
fn shared(launch: &Launch) -> usize {
    usize::from(launch.flag("shared"))
}

/// Numbers of the experts of a row, by logit and then by number.
fn chosen(logits: &[f64], count: usize) -> Vec<usize> {
    let precedes = |a: usize, b: usize| logits[a] > logits[b] || logits[a] == logits[b] && a < b;
    let rank = |expert: usize| (0..logits.len()).filter(|other| precedes(*other, expert)).count();
    let mut of_rank = vec![0; logits.len()];
    (0..logits.len()).for_each(|expert| of_rank[rank(expert)] = expert);
    of_rank[..count].to_vec()
}

/// Logits that are not finite have a test of their own.
pub fn route(launch: &mut Launch) {
    let moe_route_params { columns, .. } = launch.params();
    let (experts, count, shared) = (launch.size("experts"), launch.size("chosen"), shared(launch));
    let logits = launch.before("logits").into_iter().map(|logit| if logit.is_finite() { logit } else { 0.0 });
    let logits: Vec<f64> = logits.collect();
    launch.set("logits", &logits);
    let normalizes = launch.flag("normalize");
    let (mut choices, mut weights) = (Vec::new(), Vec::new());
    for row in logits.chunks(columns as usize) {
        let of_experts = &row[..experts];
        let order = chosen(of_experts, count);
        let of_chosen: Vec<f64> = order.iter().map(|expert| of_experts[*expert]).collect();
        let total = log_sum_exp(if normalizes { &of_chosen } else { of_experts });
        choices.extend(order.iter().map(|expert| *expert as f64));
        weights.extend(of_chosen.iter().map(|logit| (logit - total).exp()));
        choices.extend((0..shared).map(|_| experts as f64));
        weights.extend((0..shared).map(|_| sigmoid(row[experts])));
    }
    let (mut ranks, mut counts) = (Vec::new(), Vec::new());
    for group in choices.chunks(ROUTE_GROUP as usize * (count + shared)) {
        let alike = |index: usize| group[..index].iter().filter(|choice| **choice == group[index]).count() as f64;
        ranks.extend((0..group.len()).map(alike));
        let of = |expert: usize| group.iter().filter(|choice| **choice == expert as f64).count() as f64;
        counts.extend((0..experts + shared).map(of));
    }
    for (name, expected) in [("choices", choices), ("weights", weights), ("ranks", ranks), ("counts", counts)] {
        launch.is(name, &expected);
    }
}

pub fn sort(launch: &mut Launch) {
    let moe_sort_params { list, each, .. } = launch.params();
    let shared = shared(launch);
    let (matrices, choices_of_token) = (launch.size("experts") + shared, launch.size("chosen") + shared);
    let [choices, ranks, counts] = ["choices", "ranks", "counts"].map(|name| launch.before(name));
    let of_expert = |expert: usize| counts.iter().skip(expert).step_by(matrices).sum::<f64>();
    let start = |expert: usize| (0..expert).map(of_expert).sum::<f64>();
    let place = |(index, expert): (usize, &f64)| {
        let (expert, group) = (*expert as usize, index / choices_of_token / ROUTE_GROUP as usize);
        let before: f64 = (0..group).map(|group| counts[group * matrices + expert]).sum();
        start(expert) + before + ranks[index]
    };
    launch.is("places", &choices.iter().enumerate().map(place).collect::<Vec<_>>());
    let mut lists = Vec::new();
    for of_list in (0..matrices).collect::<Vec<_>>().chunks(each as usize) {
        let mut tiles = vec![0.0; 4];
        for (index, expert) in of_list.iter().enumerate() {
            let (first, end) = (start(*expert), start(*expert) + of_expert(*expert));
            let firsts = (0..).map(|tile| first + f64::from(tile * EXPERT_TILE)).take_while(|first| *first < end);
            tiles.extend(firsts.flat_map(|first| [index as f64, first, end.min(first + f64::from(EXPERT_TILE)), 0.0]));
        }
        tiles[0] = (tiles.len() / 4 - 1) as f64;
        assert!(tiles.len() <= 4 * list as usize);
        tiles.resize(4 * list as usize, 0.0);
        lists.extend(tiles);
    }
    launch.is("tiles", &lists);
}

pub fn permute(launch: &mut Launch) {
    let moe_permute_params { choices, h, .. } = launch.params();
    let (x, places, h) = (launch.before("x"), launch.before("places"), h as usize);
    let mut y = vec![0.0; places.len() * h];
    for (index, place) in places.iter().enumerate() {
        y[*place as usize * h..][..h].copy_from_slice(&x[index / choices as usize * h..][..h]);
    }
    launch.is("y", &y);
}

pub fn combine(launch: &mut Launch) {
    let moe_combine_params { h, .. } = launch.params();
    let (choices, h) = (launch.size("choices"), h as usize);
    let [y, places, weights, mut out] = ["y", "places", "weights", "residual"].map(|name| launch.before(name));
    for (index, (place, weight)) in places.iter().zip(weights).enumerate() {
        let (row, out) = (&y[*place as usize * h..][..h], &mut out[index / choices * h..][..h]);
        out.iter_mut().zip(row).for_each(|(sum, y)| *sum += weight * y);
    }
    launch.is("out", &out);
}
