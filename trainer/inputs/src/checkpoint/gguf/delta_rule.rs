//! Keys of models with the gated delta rule, as llama.cpp's converter writes them and its `qwen35.cpp` reads them.

use precast_kernels::{conv, delta_rule};
use precast_plan::{DeltaHeads, Family, LayerConfig, LayerKind, ModelConfig};
use serde_json::{Value, json};

use super::Gguf;
use super::key_values::KeyValues;
use super::keys::{
    CONV_KEY, GROUPS_KEY, INNER_KEY, INTERVAL_KEY, MTP_KEY, RANK_KEY, RECURRENT_KEY, ROTARY_KEY, SECTIONS_KEY,
    STATE_KEY, key_of,
};
use super::metadata::{Metadata, required};
use crate::checkpoint::fault::Fault;

/// The interval where nothing says one, to llama.cpp too.
const INTERVAL: usize = 4;
/// Pairs that turn with each of three positions, where config.json has none.
const SECTIONS: [u32; 3] = [11, 11, 10];

/// The heads of a family that has some.
///
/// # Errors
/// [`Fault`] for keys that are missing, and for value heads that key heads do not share evenly.
pub(super) fn heads(family: &Family, metadata: &Metadata) -> Result<Option<DeltaHeads>, Fault> {
    if !family.delta_rule {
        return Ok(None);
    }
    let count = |rest: &str| {
        let key = key_of(family, rest);
        let count = required(&key, metadata.integer(&key)?)?;
        let number = u32::try_from(count).ok().filter(|count| (1..=1 << 12).contains(count));
        number.ok_or_else(|| metadata.refuse(&key, count, "expected a number of heads"))
    };
    let (keys, values) = (count(GROUPS_KEY)?, count(RANK_KEY)?);
    if !values.is_multiple_of(keys) {
        let expected = format!("{keys} key heads ({GROUPS_KEY}) must share value heads evenly");
        return Err(metadata.refuse(&key_of(family, RANK_KEY), values, expected));
    }
    Ok(Some(DeltaHeads { keys, values }))
}

/// The number of layers that compute the next token.
pub(super) fn depth(family: &Family, metadata: &Metadata) -> Result<u64, Fault> {
    let key = key_of(family, "block_count");
    let blocks = required(&key, metadata.integer(&key)?)?;
    let key = key_of(family, MTP_KEY);
    match metadata.integer(&key)?.filter(|_| family.delta_rule) {
        Some(further) if further > blocks => {
            Err(metadata.refuse(&key, further, format!("the file has {blocks} layers in all")))
        }
        further => Ok(blocks - further.unwrap_or(0)),
    }
}

/// The number of elements of a head that are rotated: all where nothing is said.
///
/// # Errors
/// [`Fault`] for one that no head has.
fn rotary(family: &Family, metadata: &Metadata, head_dim: u64) -> Result<u64, Fault> {
    let key = key_of(family, ROTARY_KEY);
    let rotary = metadata.integer(&key)?.unwrap_or(head_dim);
    match (2..=head_dim).contains(&rotary) && rotary.is_multiple_of(2) {
        true => Ok(rotary),
        false => Err(metadata.refuse(&key, rotary, format!("expected an even number of a head's {head_dim} elements"))),
    }
}

/// The pairs that turn with each of three positions.
///
/// # Errors
/// [`Fault`] for sections that leave a pair as it is.
fn sections(gguf: &Gguf, rotary: u64) -> Result<Option<[u32; 3]>, Fault> {
    let key = key_of(gguf.family, SECTIONS_KEY);
    let Some(list) = gguf.metadata.integers(&gguf.head, &key)? else { return Ok(None) };
    let refuse = |expected: &str| Err(gguf.metadata.refuse(&key, format_args!("{list:?}"), expected));
    let numbers: Vec<u32> = list.iter().filter_map(|pairs| u32::try_from(*pairs).ok()).collect();
    match numbers[..] {
        [time, height, width, 0] if !turns([time, height, width], rotary) => refuse(UNTURNED),
        [time, height, width, 0] => Ok(Some([time, height, width])),
        _ => refuse("expected three numbers of pairs, and a 0"),
    }
}

const UNTURNED: &str = "llama.cpp leaves a pair of these as it is in text";

/// True if each rotated pair turns with a position of text, which are all the same, as `ggml_mrope_cache_init` of
/// ggml's `ops.cpp` gives pairs their positions. Another pair turns with a fourth position, which is 0 in text.
fn turns(sections: [u32; 3], rotary: u64) -> bool {
    let all: u64 = sections.iter().copied().map(u64::from).sum();
    let has_position = |pair: u64| {
        let sector = pair % all;
        sector < 3 * u64::from(sections[(sector % 3) as usize])
    };
    all > 0 && (0..rotary / 2).all(has_position)
}

/// Adds what layers do and the heads of the gated delta rule to a configuration.
///
/// # Errors
/// [`Fault`] for keys that are missing or say what this program does not compute.
pub(super) fn add(gguf: &Gguf, head_dim: u64, config: &mut Value) -> Result<(), Fault> {
    let Gguf { metadata, family, .. } = gguf;
    let Some(heads) = heads(family, metadata)? else { return Ok(()) };
    let integer = |rest: &str| {
        let key = key_of(family, rest);
        required(&key, metadata.integer(&key)?)
    };
    let (state, inner) = (integer(STATE_KEY)?, integer(INNER_KEY)?);
    if state.checked_mul(heads.values.into()) != Some(inner) {
        let expected = format!("{} value heads of {state} are another width", heads.values);
        return Err(metadata.refuse(&key_of(family, INNER_KEY), inner, expected));
    }
    config["linear_conv_kernel_dim"] = integer(CONV_KEY)?.into();
    config["linear_key_head_dim"] = state.into();
    config["linear_value_head_dim"] = state.into();
    config["linear_num_key_heads"] = heads.keys.into();
    config["linear_num_value_heads"] = heads.values.into();
    let rotary = rotary(family, metadata, head_dim)?;
    let share = rotary as f64 / head_dim as f64;
    // Readers truncate it to an integer.
    let is_less = ((head_dim as f64 * share) as u64) < rotary;
    let factor = if is_less { share.next_up() } else { share };
    let theta = &config["rope_theta"];
    let mut rope = json!({"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": factor});
    if let Some(sections) = sections(gguf, rotary)? {
        rope["mrope_section"] = sections.as_slice().into();
        rope["mrope_interleaved"] = true.into();
    }
    config["rope_parameters"] = rope;
    add_kinds(gguf, config)
}

/// Adds which layers attend: as they are listed, else each of an interval.
fn add_kinds(gguf: &Gguf, config: &mut Value) -> Result<(), Fault> {
    let Gguf { head, metadata, family, .. } = gguf;
    let depth = depth(family, metadata)?;
    let key = key_of(family, RECURRENT_KEY);
    if let Some(list) = metadata.flags(head, &key)? {
        let Some(list) = list.get(..depth as usize) else {
            return Err(metadata.refuse(&key, format_args!("of {} layers", list.len()), format!("there are {depth}")));
        };
        let name = |recurrent: &bool| if *recurrent { LayerConfig::DELTA_RULE } else { LayerConfig::FULL }.name();
        config["layer_types"] = list.iter().map(name).collect();
        return Ok(());
    }
    let key = key_of(family, INTERVAL_KEY);
    match metadata.integer(&key)?.unwrap_or(INTERVAL as u64) {
        0 => Err(metadata.refuse(&key, 0, "expected a number of layers")),
        interval => {
            config[INTERVAL_KEY] = interval.into();
            Ok(())
        }
    }
}

/// The number of layers from one that attends to the next: what readers assume, if that says the same.
fn interval(layers: &[LayerConfig]) -> usize {
    let first = layers.iter().position(|layer| layer.kind == LayerKind::Attention);
    let attends = |layer: usize| layers[layer].kind == LayerKind::Attention;
    let is_assumed = (0..layers.len()).all(|layer| attends(layer) == (layer + 1).is_multiple_of(INTERVAL));
    if is_assumed { INTERVAL } else { first.unwrap_or(layers.len()) + 1 }
}

/// Refuses layers that are not each of an interval, and sections that leave a pair as it is.
///
/// # Errors
/// [`Fault`] that names them.
pub(super) fn check(config: &ModelConfig, said: Option<[u32; 3]>) -> Result<(), Fault> {
    let ModelConfig { family, layers, rotary, .. } = config;
    if !family.delta_rule {
        return Ok(());
    }
    let interval = interval(layers);
    let implied = |layer: usize| match (layer + 1).is_multiple_of(interval) {
        true => LayerConfig::FULL,
        false => LayerConfig::DELTA_RULE,
    };
    if let Some((number, layer)) = layers.iter().enumerate().find(|(number, layer)| **layer != implied(*number)) {
        let (name, gguf) = (layer.name(), family.gguf);
        return Err(Fault::Wrong(format!(
            "layer {number} is {name} (layer_types) and {INTERVAL_KEY} = {interval} would make it {}, which GGUF files \
             of architecture {gguf} cannot say to every llama.cpp: give its Hugging Face directory",
            implied(number).name()
        )));
    }
    match said.filter(|sections| !turns(*sections, (*rotary).into())) {
        None => Ok(()),
        Some(sections) => Err(Fault::Wrong(format!(
            "rope_parameters.mrope_section is {sections:?}: {UNTURNED}; remove the line for the default"
        ))),
    }
}

/// Adds the sections where config.json has some.
pub(super) fn write_said_sections(keys: &mut KeyValues, config: &ModelConfig, said: Option<[u32; 3]>) {
    if config.family.delta_rule
        && let Some(sections) = said
    {
        write_sections(keys, config.family, sections);
    }
}

fn write_sections(keys: &mut KeyValues, family: &Family, [time, height, width]: [u32; 3]) {
    let sections = [time, height, width, 0].map(|pairs| pairs as i32);
    keys.integers(&key_of(family, SECTIONS_KEY), sections.into_iter());
}

/// Adds the keys of heads and kinds of layers.
pub(super) fn write(keys: &mut KeyValues, config: &ModelConfig, said: Option<[u32; 3]>) {
    let ModelConfig { family, layers, rotary, delta_heads, .. } = config;
    let Some(heads) = delta_heads else { return };
    let integers = [
        (CONV_KEY, conv::TAPS),
        (STATE_KEY, delta_rule::HEAD),
        (GROUPS_KEY, heads.keys),
        (RANK_KEY, heads.values),
        (INNER_KEY, heads.width()),
    ];
    integers.iter().for_each(|(rest, value)| keys.integer(&key_of(family, rest), *value));
    let recurrent = layers.iter().map(|layer| layer.kind == LayerKind::DeltaRule);
    keys.flags(&key_of(family, RECURRENT_KEY), recurrent);
    keys.integer(&key_of(family, INTERVAL_KEY), interval(layers) as u32);
    keys.integer(&key_of(family, ROTARY_KEY), *rotary);
    if said.is_none() {
        write_sections(keys, family, SECTIONS);
    }
}
