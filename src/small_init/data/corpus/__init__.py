"""Text: sources, cleaning, duplicates, generated problems, tokenizer and packing.

Three stages, each a plain function: `build.build_corpus`, `tokenizer.train_tokenizer`,
`pack.pack`. They share nothing but the files they write.
"""
