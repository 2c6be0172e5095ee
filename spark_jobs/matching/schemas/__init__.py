"""Schema matching: correspondences of fields and concepts, with relation, confidence, evidence."""
