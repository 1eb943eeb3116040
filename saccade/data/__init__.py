"""Files and generators -> examples -> batches of indices; no models here."""
