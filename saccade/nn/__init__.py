"""The fast modules, in plain PyTorch: no files, no settings objects, no text. Can be lifted out by copying this
folder."""
