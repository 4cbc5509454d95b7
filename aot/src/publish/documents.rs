//! Documents of bundles and of releases share this: CycloneDX 1.6, and in-toto statements with SLSA v1.
//!
//! JSON by hand: `cyclonedx-bom` writes 1.5 at most, and brings an XML writer.

use precast_fatbins::Digest;
use serde_json::{Value, json};

/// Returns a bill of materials without a time stamp, with a serial number made of a digest.
pub fn bill(serial: Digest, metadata: &Value, components: &[Value]) -> Value {
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": format!("urn:uuid:{}", uuid(serial)),
        "version": 1,
        "metadata": metadata,
        "components": components,
    })
}

/// Returns a component's SHA-256.
pub fn hash(digest: &str) -> Value {
    json!({ "alg": "SHA-256", "content": digest })
}

/// Returns a thing with its SHA-256, as statements name it.
pub fn named(name: &str, digest: &str) -> Value {
    json!({ "name": name, "digest": { "sha256": digest } })
}

/// Returns the statement on how subjects were built, and by which builder.
pub fn statement(subjects: &[Value], definition: &Value, builder: &Value) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": { "buildDefinition": definition, "runDetails": { "builder": builder } },
    })
}

/// Derives a UUID of version 8 (RFC 9562: application-defined bits) from a digest.
fn uuid(digest: Digest) -> String {
    let mut bytes = digest.0;
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = Digest(bytes).to_string();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]].join("-")
}
