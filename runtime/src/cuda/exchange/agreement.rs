//! Lets ranks agree before they exchange anything.

/// Returns the bytes of every rank, by rank: all ranks call it in the same order.
pub type AllGather = Box<dyn FnMut(&[u8]) -> Result<Vec<Vec<u8>>, String>>;

/// Encodes a result as bytes.
pub(super) fn encode(what: Result<String, String>) -> Vec<u8> {
    match what {
        Ok(text) => format!("+{text}").into_bytes(),
        Err(why) => format!("-{why}").into_bytes(),
    }
}

/// Decodes the results of all ranks; fails with the first error and its rank.
pub(super) fn decode(results: &[Vec<u8>]) -> Result<Vec<String>, String> {
    let of_rank = |(rank, result): (usize, &Vec<u8>)| {
        let text = String::from_utf8_lossy(result);
        match text.strip_prefix('+') {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("rank {rank}: {}", text.trim_start_matches('-'))),
        }
    };
    results.iter().enumerate().map(of_rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_that_cannot_is_why_none_does() {
        let results = [encode(Ok("a".to_owned())), encode(Ok(String::new()))];
        assert_eq!(decode(&results), Ok(vec!["a".to_owned(), String::new()]));
        assert_eq!(decode(&[results[0].clone(), encode(Err("no".to_owned()))]), Err("rank 1: no".to_owned()));
    }
}
