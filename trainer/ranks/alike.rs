//! Check that ranks are alike: the same names with the same values.

use std::collections::BTreeSet;

use super::error::RankError;
use crate::base::lines::bounded;

/// Compares the lists of all ranks, by rank: JSON of names and values.
pub fn check(lists: &[Vec<u8>]) -> Result<(), RankError> {
    let read = |list: &Vec<u8>| serde_json::from_slice::<Vec<(String, String)>>(list).unwrap_or_default();
    let lists: Vec<Vec<(String, String)>> = lists.iter().map(read).collect();
    let Some((first, others)) = lists.split_first() else { return Ok(()) };
    let mut different = Vec::new();
    for (rank, other) in (1..).zip(others) {
        let value = |list: &[(String, String)], name: &String| {
            list.iter().find(|(one, _)| one == name).map_or_else(|| "none".to_owned(), |(_, value)| value.clone())
        };
        let names: BTreeSet<&String> = first.iter().chain(other).map(|(name, _)| name).collect();
        let differs = names.into_iter().filter(|name| value(first, name) != value(other, name));
        different.extend(differs.map(|name| {
            format!("  {name} is {} on rank 0 and {} on rank {rank}", value(first, name), value(other, name))
        }));
    }
    if different.is_empty() { Ok(()) } else { Err(RankError::Different(bounded(different, 20))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_with_its_rank() {
        let list = |lr: &str, data: &str| {
            serde_json::to_vec(&[("lr".to_owned(), lr.to_owned()), ("data".to_owned(), data.to_owned())]).unwrap()
        };
        assert!(check(&[list("1", "a"), list("1", "a")]).is_ok());
        let message = check(&[list("1", "a"), list("1", "a"), list("2", "a")]).unwrap_err().to_string();
        assert!(message.contains("lr is 1 on rank 0 and 2 on rank 2") && !message.contains("data is"), "{message}");
    }
}
