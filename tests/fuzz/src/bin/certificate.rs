//! A certificate: a file as it is, and with the digest that is right.
#![no_main]

use precast::run::certificate::{Certificate, Measured, Subject};
use precast_core::Digest;
use precast_fuzz::{Folder, model};
use precast_inputs::checkpoint::Checkpoint;

precast_fuzz::target!(
    || {
        let sha256 = Digest([7; 32]);
        let subject = Subject {
            weights_sha256: sha256,
            config_sha256: sha256,
            format: "int8".to_owned(),
            kernels_sha256: sha256,
        };
        let certificate = Certificate {
            subject,
            against: "bf16".to_owned(),
            measured: Measured {
                kl_mean: 0.001,
                kl_max: 0.1,
                agreement: 0.98,
                perplexity: 12.0,
                exact_perplexity: 11.9,
                tokens: 4096,
            },
            vocab: 16,
            data: vec!["data.txt".to_owned()],
            ids_sha256: sha256,
            arch: "sm_90a".to_owned(),
            device: "a chip".to_owned(),
            version: "0.1.0".to_owned(),
            bundle_sha256: sha256,
            sha256,
        };
        vec![serde_json::to_vec_pretty(&certificate.with_digest()).expect("plain data serializes")]
    },
    |input: &[u8]| {
        thread_local!(static MODEL: (Folder, Checkpoint) = model::opened());
        MODEL.with(|(folder, model)| {
            let path = folder.put("certificate.json", input);
            let _ = Certificate::check_replaceable(&path);
            let Ok(certificate) = serde_json::from_slice::<Certificate>(input) else { return };
            let subject = certificate.subject.clone();
            let _ = Certificate::read(&path, model, &subject);
            certificate.with_digest().write(&path).expect("a file is written");
            if let Ok(read) = Certificate::read(&path, model, &subject) {
                assert!(read.vocab == model.config().vocab && read.measured.is_finite());
            }
        });
    }
);
